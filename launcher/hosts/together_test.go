package hosts

import "testing"

// Lists of host names are shortened as elsewhere in plx.
func TestListedJoinsHostNames(t *testing.T) {
	for want, names := range map[string][]string{"host h1": {"h1"}, "hosts h[1-3],login": {"h1", "h2", "h3", "login"}} {
		if got := Listed(names); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
