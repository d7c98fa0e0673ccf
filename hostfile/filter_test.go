package hostfile

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const filterFile = `gpu01: 3,0,1
gpu02
gpu03 slots=4
cpu01: cpu*2
store1: ps
twin:2201: 0
twin:2202: 0
bob@[fd00::4]: 0
most exclude=2,5
uuid: GPU-aa01,MIG-feb8,GPU-aa02
`

func TestFilter(t *testing.T) {
	list := func(entries ...string) []string { return entries }
	tests := []struct {
		name             string
		include, exclude []string
		want             string // the resulting lines joined by "; "
	}{
		{"include hosts in file order", list("store1", "GPU01"), nil, "gpu01: 3,0,1; store1: ps"},
		{"include ids in file order", list("gpu01:1,3"), nil, "gpu01: 3,1"},
		{"include ids of two entries", list("gpu01:1", "gpu01: 3,1"), nil, "gpu01: 3,1"},
		{"a whole host beats its ids", list("gpu01:1", "gpu01"), nil, "gpu01: 3,0,1"},
		{"its ids change nothing", list("gpu01", "gpu01:1"), nil, "gpu01: 3,0,1"},
		{"include ids of all GPUs", list("gpu02:5,0"), nil, "gpu02: 5,0"},
		{"include ids of slots", list("gpu03:3,1"), nil, "gpu03: 3,1"},
		{"include by port", list("twin:2202:"), nil, "twin:2202: 0"},
		{"include ids by port", list("twin:2202:0"), nil, "twin:2202: 0"},
		{"include a name with two ports", list("twin"), nil, "twin:2201: 0; twin:2202: 0"},
		{"include IPv6", list("[FD00::4]:0"), nil, "bob@[fd00::4]: 0"},
		{"include by user", list("bob@[fd00::4]"), nil, "bob@[fd00::4]: 0"},
		{"include cpu and server hosts", list("cpu01", "store1"), nil, "cpu01: cpu*2; store1: ps"},
		{"exclude hosts", nil, list("twin", "gpu02", "gpu03", "store1", "[fd00::4]", "most", "uuid"), "gpu01: 3,0,1; cpu01: cpu*2"},
		{"both on ids", list("gpu01", "gpu02:0,1"), list("gpu01:0", "gpu02:1"), "gpu01: 3,1; gpu02: 0"},
		{"exclude wins", list("gpu01", "gpu02"), list("gpu02"), "gpu01: 3,0,1"},
		{"exclude ids of all GPUs", list("gpu02"), list("gpu02:4,1", "gpu02:1"), "gpu02 exclude=1,4"},
		{"exclude more ids", list("most"), list("most:7,0"), "most exclude=0,2,5,7"},
		{"exclude ids of slots", list("gpu03"), list("gpu03:0"), "gpu03 slots=4 exclude=0"},
		{"every id excluded", list("gpu01", "gpu03", "cpu01"), list("gpu01:0,1,3", "gpu03:0,1,2,3"), "cpu01: cpu*2"},
		{"include the start of a UUID", list("uuid:GPU-aa02,MIG-f"), nil, "uuid: MIG-feb8,GPU-aa02"},
		{"exclude the start of a UUID", list("uuid"), list("uuid:MIG-" + "fe"), "uuid: GPU-aa01,GPU-aa02"},
		{"include UUIDs of all GPUs", list("gpu02:GPU-b,GPU-c"), list("gpu02:GPU-cc"), "gpu02: GPU-b"},
		{"exclude UUIDs of all GPUs", list("gpu02"), list("gpu02:GPU-b,3"), "gpu02 exclude=3,GPU-b"},
		{"no filter", nil, nil, strings.TrimSuffix(strings.ReplaceAll(filterFile, "\n", "; "), "; ")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hosts, err := Parse(strings.NewReader(filterFile), "f")
			if err != nil {
				t.Fatal(err)
			}
			got, err := Filter(hosts, test.include, test.exclude)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(strings.TrimSuffix(Format(got), "\n"), "\n", "; ")
			if text != test.want {
				t.Errorf("got %s\nwant %s", text, test.want)
			}
			again, err := Parse(strings.NewReader(filterFile), "f")
			if err != nil || !reflect.DeepEqual(hosts, again) {
				t.Errorf("the argument changed to %v (%v)", hosts, err)
			}
		})
	}
}

func TestFilterRejectsWrongEntries(t *testing.T) {
	tests := []struct{ entry, want, hint string }{
		{"gpu09", "unknown host gpu09", "gpu01, gpu02, gpu03"},
		{"gpu09:0", "unknown host gpu09", ""},
		{"gpu01:22:", "", ""}, // naming the default port is allowed
		{"gpu01:2222:", "unknown host gpu01", ""},
		{"alice@gpu01", "unknown host gpu01", ""},
		{"gpu01:0,2", `host gpu01 has no GPU 2, at f:1 it has "3,0,1"`, ""},
		{"gpu03:4", `host gpu03 has no GPU 4, at f:3 it has "slots=4"`, ""},
		{"most:2", `host most has no GPU 2, at f:9 it has "exclude=2,5"`, ""},
		{"cpu01:0", `host cpu01 has no GPU ids, at f:4 it has "cpu*2"`, ""},
		{"store1:0", "host store1 has no GPU ids", ""},
		{"twin:0", "host twin is both f:6 and f:7", "port"},
		{"gpu01:2222", "looks like a port", ""},
		{"gpu01:0,0", "id 0 is named twice", ""},
		{"uuid:GPU-aa", `GPU-aa is the start of GPU-aa01,GPU-aa02, at f:10 host uuid has "GPU-aa01,MIG-feb8,GPU-aa02"`, ""},
		{"uuid:0", "host uuid has no GPU 0", ""},
		{"uuid:GPU-aa011", "host uuid has no GPU GPU-aa011", ""},
		{"gpu01:GPU-aa", "host gpu01 has no GPU GPU-aa", ""},
		{"gpu03:GPU-aa", `host gpu03 counts its GPUs, at f:3 it has "slots=4", expected ids from 0 to 3`, ""},
		{"gpu01: cpu", "expected host or host:ids", ""},
		{"gpu01 slots=2", "expected host or host:ids", ""},
		{"gpu02 exclude=1", "expected host or host:ids", ""},
		{"gpu01 addr=10.0.0.1", "expected host or host:ids", ""},
		{"", "found nothing", ""},
		{"fd00::4", "without brackets", ""},
	}
	hosts, err := Parse(strings.NewReader(filterFile), "f")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.entry, func(t *testing.T) {
			_, included := Filter(hosts, []string{test.entry}, nil)
			_, excluded := Filter(hosts, nil, []string{"gpu02", test.entry})
			if test.want == "" {
				if included != nil || excluded != nil {
					t.Fatalf("got %v and %v", included, excluded)
				}
				return
			}
			for flag, err := range map[string]error{"--include ": included, "--exclude ": excluded} {
				if err == nil || !strings.HasPrefix(err.Error(), flag) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %s... %s", err, flag, test.want)
				}
				var advised interface{ Hint() string }
				if !errors.As(err, &advised) || !strings.Contains(advised.Hint(), test.hint) {
					t.Errorf("no hint with %q in %v", test.hint, err)
				}
			}
		})
	}
}

// Before the probe it is unknown whether a UUID and an index name the same
// GPU.
func TestFilterRejectsMixOfIndexAndUUID(t *testing.T) {
	hosts, err := ParseLines([]string{"a", "b exclude=2"})
	if err != nil {
		t.Fatal(err)
	}
	for include, exclude := range map[string]string{"a:GPU-1": "a:0", "a:0": "a:GPU-1", "a:MIG-1": "a:GPU-1", "b:GPU-1": "a:0"} {
		_, err := Filter(hosts, []string{include}, []string{exclude})
		if err == nil || !strings.Contains(err.Error(), "expected both by index or both by UUID") {
			t.Errorf("%s and %s: %v", include, exclude, err)
		}
	}
}

func TestFilterRejectsEmptyResult(t *testing.T) {
	hosts, err := ParseLines([]string{"gpu01: 0"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Filter(hosts, []string{"gpu01"}, []string{"gpu01:0"}); err == nil {
		t.Errorf("got %v", got)
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("gpu01:0", "gpu02:1")
	f.Add("twin:2202:0", "gpu03: 1,2")
	f.Add("gpu02:GPU-1", "uuid:MIG-")
	hosts, err := Parse(strings.NewReader(filterFile), "f")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, include, exclude string) {
		got, err := Filter(hosts, []string{include}, []string{exclude})
		if err != nil {
			return
		}
		again, err := Parse(strings.NewReader(Format(got)), "f")
		if err != nil || Format(again) != Format(got) {
			t.Fatalf("%q became %q (%v)", Format(got), Format(again), err)
		}
	})
}

// A hint lists at most eight hosts.
func TestHintListsEightHosts(t *testing.T) {
	for n, want := range map[int]string{8: "h1, h2, h3, h4, h5, h6, h7, h8", 9: "h1, h2, h3, h4, h5, h6, h7, h8, and 1 more"} {
		var hosts []Host
		for i := range n {
			hosts = append(hosts, Host{Name: fmt.Sprint("h", i+1)})
		}
		if got := someNames(hosts); got != want {
			t.Errorf("%d hosts: %s", n, got)
		}
	}
}
