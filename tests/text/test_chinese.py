"""Chinese: figures, dates, money, measures and signs as a person would say them."""

from __future__ import annotations

import cn2an  # type: ignore[import-untyped]  # rejected: it has no type information
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.text.chinese import number
from duolog.text.speakable import speakable

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("今天25度，涨了5%。", "今天二十五度，涨了百分之五。"),
        ("今天-3℃，明天 12°C", "今天零下三摄氏度，明天 十二摄氏度"),
        ("2024年5月3日", "二零二四年五月三日"),
        ("2024-05-03发布", "二零二四年五月三日发布"),
        ("90年代，10年前，2000年", "九零年代，十年前，二零零零年"),
        ("等了2年，第2年", "等了两年，第二年"),
        ("下午2:30开会，8:00起床，10:05出门", "下午两点三十分开会，八点起床，十点零五分出门"),
        ("9:00-17:00", "九点到十七点"),
        ("¥12.50，¥12.05，¥0.50，￥1,000.00", "十二元五角，十二元零五分，五角，一千元"),
        ("¥3万，$1.5亿，$3.5，500 RMB", "三万元，一点五亿美元，三点五美元，五百元"),
        ("5-10%，50%-60%", "百分之五到百分之十，百分之五十到百分之六十"),
        ("5~10公里，5-10km", "五到十公里，五到十公里"),
        ("1 km，2 km，2公斤，60km/h", "一公里，两公里，两公斤，六十公里每小时"),
        ("2个苹果，12个，第2个，2月2日", "两个苹果，十二个，第二个，二月二日"),
        ("3:2获胜，16:9", "三比二获胜，十六比九"),
        ("1/2，3/4的人", "二分之一，四分之三的人"),
        ("13800138000", "幺三八零零幺三八零零零"),
        ("010-12345678", "零幺零，幺二三四五六七八"),
        ("+86 138 0013 8000", "加八六，幺三八，零零幺三，八零零零"),
        ("拨打110", "拨打幺幺零"),
        ("版本1.2.3，Python 3.11", "版本一点二点三，Python 三点一一"),
        ("iPhone 15，5G网络，H2O", "iPhone 十五，5G网络，H2O"),
        ("1+1=2，5×3=15，3 - 1 = 2", "一加一等于二，五乘三等于十五，三减一等于二"),
        ("5 < 10，x>3", "五小于十，x大于三"),
        ("约50人，~50人", "约五十人，约五十人"),
        ("和/或，中/英", "和或，中或英"),
        ("100,000，1.0，0.05，1,000.00", "十万，一点零，零点零五，一千点零零"),
        ("007，101，10010，2000人", "零零七，一百零一，一万零一十，两千人"),
        ("1.2亿元，3.5万", "一点二亿元，三点五万"),
        ("-5", "负五"),
        ("2^10", "二的十次方"),
        ("July 4, 2020 发布", "July fourth, twenty twenty 发布"),
        ("访问 https://www.example.com/path", "访问 example点com"),
        ("邮箱 zhang.san@example.com", "邮箱 zhang点san at example点com"),
        ("这是*重点*内容，**很**好", "这是重点内容，很好"),
        ("1. 第一", "一，第一"),
        ("C++ 和 C#", "C 加加 和 C sharp"),
        ("Q&A", "Q和A"),
        ("😀你好👋", "你好"),
    ],
)
def test_chinese_words(written: str, said: str) -> None:
    assert speakable(written, "zh").text == said


@given(st.integers(0, 10**15))
def test_a_number_in_words_is_the_number(value: int) -> None:
    assert cn2an.cn2an(number(str(value)), "smart") == value
