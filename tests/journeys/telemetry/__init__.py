"""What a program with OpenTelemetry sees."""
