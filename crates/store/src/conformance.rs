//! What every engine must do, as named tests.
