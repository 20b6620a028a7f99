"""AWX without AWX: its collection from a wheel, and a small API that refuses what AWX refuses."""
