//! OpenAPI documents of large definitions, compressed and plain.
