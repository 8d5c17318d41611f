"""The recurrent networks on Brown, beside windows and counts."""
