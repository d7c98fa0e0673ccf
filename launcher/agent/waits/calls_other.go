//go:build linux && !amd64

package waits

import "sync"

// calls returns the system calls that can block, by number.
var calls = sync.OnceValue(common)
