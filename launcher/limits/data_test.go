//go:build !race

package limits

import "testing"

// The race detector takes more memory for data than this limit, before main.
func TestLowLimitOfData(t *testing.T) {
	if got, want := checked(t, "ulimit -d 120000", 0), "the shell limits the memory for data to 117 MiB (ulimit -d)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
