package placement

import (
	"slices"
	"strings"
	"testing"
)

// If one machine has several host names, Conflicts reports them in one line.
// If two of these hosts use the same GPU, that is an error.
func TestHostsOnOneMachine(t *testing.T) {
	for _, c := range []struct {
		lines string
		ids   []string
		want  []string
		err   string
	}{
		{"a: 0 | 0 1\nb: 1 | 0 1", []string{"boot/m", "boot/m"}, []string{"hosts a,b are one machine (m)"}, ""},
		{"a: 0 | 0 1\nb: 0 | 0 1", []string{"boot/m", "boot/m"}, nil, "hosts a,b are one machine (m), and both would use gpu 0"},
		{"a: cpu | 0\nb: cpu | 0", []string{"boot/m", "boot/m"}, []string{"hosts a,b are one machine (m)"}, ""},
		{"n1: 0 | 0 1\nb: cpu | 0\nn2: 1 | 0 1\nn3: cpu | 0\nc: cpu | 0", []string{"boot/m", "boot/n", "boot/m", "boot/m", "boot/n"},
			[]string{"hosts n[1-3] are one machine (m)", "hosts b,c are one machine (n)"}, ""},
		{"n1: 0 | 0 1\nn2: 1 | 0 1\nn3: 1 | 0 1", []string{"boot/m", "boot/m", "boot/m"}, nil, "hosts n[2-3] are one machine (m), and both would use gpu 1"},
		{"a: 0 | 0 1\nb: 0 | 0 1", []string{"boot/m", "boot/n"}, nil, ""},
		{"a: 0 | 0 1\nb: 0 | 0 1", []string{"", ""}, nil, ""},
	} {
		ms := machines(t, c.lines)
		for i := range ms {
			ms[i].ID = c.ids[i]
		}
		p, err := Place(ms, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Conflicts(ms)
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q %v: %q, %v", c.lines, c.ids, got, err)
		}
	}
}
