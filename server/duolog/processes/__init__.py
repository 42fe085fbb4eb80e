"""`duolog up`: starts, watches and stops the programs a call needs. Imports no engine and no model library."""
