package plural

import "testing"

func TestCount(t *testing.T) {
	for _, test := range []struct {
		n    int
		noun string
		want string
	}{{0, "host", "0 hosts"}, {1, "host", "1 host"}, {2, "host", "2 hosts"}, {1, "process", "1 process"}, {3, "process", "3 processes"}} {
		if got := Count(test.n, test.noun); got != test.want {
			t.Errorf("%d %s: %q, want %q", test.n, test.noun, got, test.want)
		}
	}
}
