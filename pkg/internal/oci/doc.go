// Package oci reads bundles of the OCI runtime specification and makes of one the
// bundle of a session's container.
//
// Nothing of the user's bundle is written to. The configuration is patched as JSON, not
// as a Go value, so that what a newer runtime knows of it and this package does not is
// handed on as it is.
package oci
