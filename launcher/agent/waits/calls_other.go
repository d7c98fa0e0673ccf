//go:build linux && !amd64

package waits

// calls are the system calls that wait, by number.
var calls = common
