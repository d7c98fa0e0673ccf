package hosts

import "testing"

// Host names fold in one way everywhere.
func TestListedJoinsHostNames(t *testing.T) {
	for want, names := range map[string][]string{"host h1": {"h1"}, "hosts h[1-3],login": {"h1", "h2", "h3", "login"}} {
		if got := Listed(names); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
