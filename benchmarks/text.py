"""How long a phrase takes to become speakable. `python -m benchmarks.text`; prints a table, needs no models."""

from __future__ import annotations

import statistics
import time

from duolog.text.speakable import speakable

ROUNDS = 300
PHRASES = {
    "en, plain": ("en", "Sure, I can help you with that, just tell me what you need today."),
    "en, dense": (
        "en",
        "On July 4, 2020 at 10:30am, **Dr. Smith** paid $1,234.50 for 5 km of cable (50% off), see"
        " https://www.example.com/docs and mail me@example.org 😀.",
    ),
    "zh, plain": ("zh", "今天天气很好，我们一起去公园散步吧。"),
    "zh, dense": (
        "zh",
        "2024年5月3日下午2:30，我在 https://a.cn 花了¥12.50买了2个苹果，涨了5%，用 Python 3.11 写的😀。",
    ),
}


def measure_ms(text: str, language: str) -> list[float]:
    """Processor time, sorted, in milliseconds, the first (uncached) round left out."""
    speakable(text, language)
    taken = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        speakable(text, language)
        taken.append((time.thread_time() - started) * 1000)
    return sorted(taken)


def main() -> None:
    print(f"{'phrase':<12}{'characters':>12}{'p50 ms':>10}{'p95 ms':>10}")
    for name, (language, text) in PHRASES.items():
        taken = measure_ms(text, language)
        print(f"{name:<12}{len(text):>12}{statistics.median(taken):>10.2f}{taken[int(0.95 * len(taken))]:>10.2f}")


if __name__ == "__main__":
    main()
