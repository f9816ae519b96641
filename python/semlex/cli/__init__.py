"""The command line: parse, call, print."""

# Modules are imported when a command needs them: `semlex --help` loads neither numpy nor the database driver.
