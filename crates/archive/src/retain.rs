//! What is let go, and when: by age, by size, and when the disk is full.
