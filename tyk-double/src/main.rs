//! The stand-in as a program, for the image that the cluster scenarios run.

fn main() {}
