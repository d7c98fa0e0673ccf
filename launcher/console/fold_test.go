package console

import (
	"slices"
	"testing"
)

func TestFold(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"h1"}, "h1"},
		{[]string{"h1", "h2", "h3"}, "h[1-3]"},
		{[]string{"h3", "h1", "h2"}, "h[1-3]"},
		{[]string{"h1", "h3", "h4", "h9"}, "h[1,3-4,9]"},
		{[]string{"gpu08", "gpu09", "gpu10", "gpu011"}, "gpu[08-10,011]"},
		{[]string{"h7", "h08", "h8"}, "h[7,08,8]"},
		{[]string{"h9", "h10", "h100"}, "h[9-10,100]"},
		{[]string{"login", "h2", "h1", "store"}, "login,h[1-2],store"},
		{[]string{"gpu01.c2.example.org", "gpu02.c2.example.org", "gpu01.c3.example.org"}, "gpu[01-02].c2.example.org,gpu01.c3.example.org"},
		{[]string{"rack1-node1", "rack1-node2", "rack2-node1"}, "rack1-node[1-2],rack2-node1"},
		{[]string{"n1a", "n2a", "n1b"}, "n[1-2]a,n1b"},
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.1.3"}, "10.0.0.[1-2],10.0.1.3"},
		{[]string{"h1:2222", "h2:2222", "h2"}, "h[1-2]:2222,h2"},
		{[]string{"fd00::1", "fd00::2"}, "fd00::1,fd00::2"},
		{[]string{"[fd00::1]:22", "1", "2", "h99999999999999999999"}, "[fd00::1]:22,1,2,h99999999999999999999"},
		{[]string{"h1", "h1"}, "h[1,1]"},
	} {
		if got := Fold(c.names); got != c.want {
			t.Errorf("Fold(%q) = %q, want %q", c.names, got, c.want)
		}
	}
}

func TestFoldHosts(t *testing.T) {
	for _, c := range []struct{ lines, want []string }{
		{nil, nil},
		{[]string{"host h1: no route", "host h2: no route"}, []string{"hosts h[1-2]: no route"}},
		{[]string{"a", "host h2: x: y", "host fd00::4: x", "", "host h1: x: y", "a", "host fd00::5: x"},
			[]string{"a", "hosts h[1-2]: x: y", "hosts fd00::4,fd00::5: x", "", "a"}},
		{[]string{"host h1: x", "host h2: y", "the host h1: x"}, []string{"host h1: x", "host h2: y", "the host h1: x"}},
		{[]string{"host h1: x\ny", "host h2: x\nz", "host h3: x\ny"}, []string{"hosts h[1,3]: x\ny", "host h2: x\nz"}},
		{[]string{"host h1: x", "host h1: x"}, []string{"hosts h[1,1]: x"}},
	} {
		if got := FoldHosts(c.lines); !slices.Equal(got, c.want) {
			t.Errorf("FoldHosts(%q) = %q, want %q", c.lines, got, c.want)
		}
	}
}
