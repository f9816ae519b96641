"""What a program with OpenTelemetry learns of semlex's work."""
