//go:build linux && !amd64

package waits

import "sync"

// calls are the system calls that wait, by number.
var calls = sync.OnceValue(common)
