"""The command line: parse, call, print.

What a command needs is imported when it runs: `semlex --help` loads neither numpy nor the driver.
"""
