//go:build linux

package watchdog

import (
	"testing"
	"time"
)

// The time until a stuck supervisor is killed is shorter than the lease, but
// long enough for a short pause.
func TestStuckAfter(t *testing.T) {
	for lease, want := range map[time.Duration]int{
		0: 30, time.Second: 3, 5 * time.Second: 3, 10 * time.Second: 6, 30 * time.Second: 18, time.Hour: 30,
	} {
		if got := stuckAfter(lease); got != want {
			t.Errorf("lease %s: %d s, want %d", lease, got, want)
		}
	}
}
