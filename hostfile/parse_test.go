package hostfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLines(t *testing.T) {
	uuids := func(ids ...ID) Devices { return Devices{Kind: GPUs, IDs: ids} }
	ids := func(ns ...int) (d Devices) {
		d.Kind = GPUs
		for _, n := range ns {
			d.IDs = append(d.IDs, ID(strconv.Itoa(n)))
		}
		return d
	}
	cpus := func(n int) Devices { return Devices{Kind: CPUs, Count: n} }
	tests := []struct {
		line  string
		want  Host
		canon string
	}{
		{"10.0.0.1: 0,1,2,3 # GPU ids", Host{Name: "10.0.0.1", Devices: ids(0, 1, 2, 3)}, "10.0.0.1: 0,1,2,3"},
		{"10.0.0.1:0,1", Host{Name: "10.0.0.1", Devices: ids(0, 1)}, "10.0.0.1: 0,1"},
		{"gpu02.example.org", Host{Name: "gpu02.example.org"}, "gpu02.example.org"},
		{"gpu02:", Host{Name: "gpu02"}, "gpu02"},
		{"gpu02:#none", Host{Name: "gpu02"}, "gpu02"},
		{"gpu_2 :\t3 ,\t1", Host{Name: "gpu_2", Devices: ids(3, 1)}, "gpu_2: 3,1"},
		{"gpu02:3", Host{Name: "gpu02", Devices: ids(3)}, "gpu02: 3"},
		{"gpu02:63", Host{Name: "gpu02", Devices: ids(63)}, "gpu02: 63"},
		{"gpu02: 22", Host{Name: "gpu02", Devices: ids(22)}, "gpu02: 22"},
		{"gpu02:22,23", Host{Name: "gpu02", Devices: ids(22, 23)}, "gpu02: 22,23"},
		{"gpu02:22:", Host{Name: "gpu02", Port: 22}, "gpu02:22:"},
		{"gpu02:22:22", Host{Name: "gpu02", Port: 22, Devices: ids(22)}, "gpu02:22: 22"},
		{"gpu02:65535:0", Host{Name: "gpu02", Port: 65535, Devices: ids(0)}, "gpu02:65535: 0"},
		{"gpu02:2222:0,1", Host{Name: "gpu02", Port: 2222, Devices: ids(0, 1)}, "gpu02:2222: 0,1"},
		{"gpu02: 2222 : 0", Host{Name: "gpu02", Port: 2222, Devices: ids(0)}, "gpu02:2222: 0"},
		{"alice@10.0.0.3:2222: cpu*2", Host{User: "alice", Name: "10.0.0.3", Port: 2222, Devices: cpus(2)}, "alice@10.0.0.3:2222: cpu*2"},
		{"h: cpu", Host{Name: "h", Devices: cpus(1)}, "h: cpu"},
		{"h:cpu*1", Host{Name: "h", Devices: cpus(1)}, "h: cpu"},
		{"h: cpu * 4", Host{Name: "h", Devices: cpus(4)}, "h: cpu*4"},
		{"store1: ps", Host{Name: "store1", Devices: Devices{Kind: ServerOnly}}, "store1: ps"},
		{"[fd00::4]: 0,1", Host{Name: "fd00::4", Devices: ids(0, 1)}, "[fd00::4]: 0,1"},
		{"[FD00:0::4]", Host{Name: "fd00::4"}, "[fd00::4]"},
		{"bob@[fd00::4]:22:ps", Host{User: "bob", Name: "fd00::4", Port: 22, Devices: Devices{Kind: ServerOnly}}, "bob@[fd00::4]:22: ps"},
		{"[fe80::1%eth0]:0", Host{Name: "fe80::1%eth0", Devices: ids(0)}, "[fe80::1%eth0]: 0"},
		{"ps: ps", Host{Name: "ps", Devices: Devices{Kind: ServerOnly}}, "ps: ps"},
		{"h slots=4", Host{Name: "h", Devices: Devices{Kind: Slots, Count: 4}}, "h slots=4"},
		{"h slots = 4 max_slots=8", Host{Name: "h", Devices: Devices{Kind: Slots, Count: 4}}, "h slots=4"},
		{"h max-slots=4 slots=4", Host{Name: "h", Devices: Devices{Kind: Slots, Count: 4}}, "h slots=4"},
		{"h:2222: slots=4", Host{Name: "h", Port: 2222, Devices: Devices{Kind: Slots, Count: 4}}, "h:2222: slots=4"},
		{"h: slots=100", Host{Name: "h", Devices: Devices{Kind: Slots, Count: 100}}, "h slots=100"},
		{"h addr=10.1.0.1", Host{Name: "h", DataAddr: "10.1.0.1"}, "h addr=10.1.0.1"},
		{"h: addr=fd00::9", Host{Name: "h", DataAddr: "fd00::9"}, "h addr=fd00::9"},
		{"h:2222: addr=fd00::9", Host{Name: "h", Port: 2222, DataAddr: "fd00::9"}, "h:2222: addr=fd00::9"},
		{"h: 0,1 addr=[fd00::9]", Host{Name: "h", Devices: ids(0, 1), DataAddr: "fd00::9"}, "h: 0,1 addr=fd00::9"},
		{"h: ps addr=10.1.0.1", Host{Name: "h", Devices: Devices{Kind: ServerOnly}, DataAddr: "10.1.0.1"}, "h: ps addr=10.1.0.1"},
		{"h: 0 nic=ib0.8001", Host{Name: "h", Devices: ids(0), Interface: "ib0.8001"}, "h: 0 nic=ib0.8001"},
		{"h nic = ib0 A=1", Host{Name: "h", Interface: "ib0", Env: []string{"A=1"}}, "h nic=ib0 A=1"},
		{`h: 0,1 A="x # = y,  z" B='say "no"' C= nic=eth1 _D1=a=b # A=3 "`, Host{Name: "h", Devices: ids(0, 1), Interface: "eth1",
			Env: []string{"A=x # = y,  z", `B=say "no"`, "C=", "_D1=a=b"}}, `h: 0,1 nic=eth1 A="x # = y,  z" B='say "no"' C="" _D1=a=b`},
		{`h:A='\n $X' addr=10.1.0.1`, Host{Name: "h", DataAddr: "10.1.0.1", Env: []string{`A=\n $X`}}, `h addr=10.1.0.1 A="\n $X"`},
		{`h A="été"# why`, Host{Name: "h", Env: []string{"A=été"}}, "h A=été"},
		{"h exclude=3, 1", Host{Name: "h", Devices: Devices{Excluded: []ID{"1", "3"}}}, "h exclude=1,3"},
		{"h: GPU-02ba5a4d-8cb4-f0a5-2a8f-1f4f3c0a1b2d", Host{Name: "h", Devices: uuids("GPU-02ba5a4d-8cb4-f0a5-2a8f-1f4f3c0a1b2d")}, "h: GPU-02ba5a4d-8cb4-f0a5-2a8f-1f4f3c0a1b2d"},
		{"h:gpu-02BA5A4D-8 , 3,MIG-f", Host{Name: "h", Devices: uuids("GPU-02ba5a4d-8", "3", "MIG-f")}, "h: GPU-02ba5a4d-8,3,MIG-f"},
		{"h:2222:MIG-feb88891-0321-5fef-9c87-d4af3b54259e", Host{Name: "h", Port: 2222, Devices: uuids("MIG-feb88891-0321-5fef-9c87-d4af3b54259e")}, "h:2222: MIG-feb88891-0321-5fef-9c87-d4af3b54259e"},
		{"h: mig-gpu-932bfb2c-849a-2a22-1e84-9eff6bc02b39/7/0", Host{Name: "h", Devices: uuids("MIG-GPU-932bfb2c-849a-2a22-1e84-9eff6bc02b39/7/0")}, "h: MIG-GPU-932bfb2c-849a-2a22-1e84-9eff6bc02b39/7/0"},
		{"h: MIG-GPU-932bfb2c", Host{Name: "h", Devices: uuids("MIG-GPU-932bfb2c")}, "h: MIG-GPU-932bfb2c"},
		{"h exclude=GPU-02b,7,0", Host{Name: "h", Devices: Devices{Excluded: []ID{"0", "7", "GPU-02b"}}}, "h exclude=0,7,GPU-02b"},
		{"h exclude=1 slots=4", Host{Name: "h", Devices: Devices{Kind: Slots, Count: 4, Excluded: []ID{"1"}}}, "h slots=4 exclude=1"},
	}
	for _, test := range tests {
		t.Run(test.line, func(t *testing.T) {
			hosts, err := ParseLines([]string{test.line})
			if err != nil {
				t.Fatal(err)
			}
			if want := (Position{File: "--host", Line: 1}); hosts[0].Pos != want {
				t.Errorf("position %v, want %v", hosts[0].Pos, want)
			}
			got := hosts[0]
			got.Pos = Position{}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
			if got.String() != test.canon {
				t.Errorf("prints as %q, want %q", got.String(), test.canon)
			}
			again, err := ParseLines([]string{test.canon})
			if err != nil {
				t.Fatal(err)
			}
			again[0].Pos = Position{}
			if !reflect.DeepEqual(again[0], test.want) {
				t.Errorf("round trip gives %+v, want %+v", again[0], test.want)
			}
		})
	}
}

func TestWrongLinesAreRejected(t *testing.T) {
	tests := []struct{ line, want, hint string }{
		// A single number that is probably meant as a port.
		{"gpu01:2222", "2222 looks like a port where an id was meant", `"gpu01:2222:"`},
		{"gpu01: 2222", "2222 looks like a port where an id was meant", `"gpu01: 0,1"`},
		{"gpu01:64", "64 looks like a port", ""},
		{"gpu01:22", "22 looks like a port", `"gpu01: 22"`},
		{"gpu01 :22", "22 looks like a port", ""},
		{"gpu01:22 slots=4", "22 looks like a port", ""},
		{"alice@gpu01:2222 # jump", "2222 looks like a port", ""},
		{"[fd00::4]:2222", "2222 looks like a port", `"[fd00::4]:2222:"`},
		{"gpu01:22:2222", `id "2222" is too large`, ""},
		{"gpu01:99999", `id "99999" is too large`, ""},
		{"gpu01: 0,64", `id "64" is too large`, "second colon"},
		// Ids.
		{"gpu01: 0,1,0", "id 0 is named twice", ""},
		{"gpu01: 0,00", "id 0 is named twice", ""},
		{"gpu01: -1", `negative id "-1"`, ""},
		{"gpu01: 0,-1", `negative id "-1"`, ""},
		{"gpu01: 0,+1", `bad id "+1"`, ""},
		{"gpu01: 0,", "id missing", ""},
		{"gpu01: ,", "id missing", ""},
		{"gpu01: 0,,1", "id missing", ""},
		{"gpu01: 0,x", `bad id "x"`, ""},
		{"gpu01: 0 1", "expected a comma", ""},
		{"gpu01: 0,99999999999999999999999", "is too large", ""},
		// UUIDs.
		{"gpu01: GPU-", `bad UUID "GPU-"`, "plx probe prints the UUIDs"},
		{"gpu01: MIG-GPU-", `bad UUID "MIG-GPU-"`, ""},
		{"gpu01: GPU-xyz", `bad UUID "GPU-xyz"`, ""},
		{"gpu01: GPU-02ba5a4d8cb4f0a52", `bad UUID "GPU-02ba5a4d8cb4f0a52"`, ""},
		{"gpu01: GPU-02ba5a4d-8cb4-f0a5-2a8f-1f4f3c0a1b2d0", "bad UUID", ""},
		{"gpu01: GPU-02ba5a4d-8cb4-f0a5-2a8f-1f4f3c0a1b2d/7/0", "bad UUID", ""},
		{"gpu01: MIG-GPU-932bfb2c/7/0", "bad UUID", ""},
		{"gpu01: MIG-GPU-932bfb2c-849a-2a22-1e84-9eff6bc02b39/7", "bad UUID", ""},
		{"gpu01: 0,GPU-02b,gpu-02B", "id GPU-02b is named twice", ""},
		{"gpu01 exclude=GPU-$(id)", "bad UUID", ""},
		{"gpu01 slots=2 exclude=GPU-02b", "exclude=GPU-02b with slots=2, expected ids from 0 to 1", ""},
		{"gpu01 GPU-02b", "expected a colon", ""},
		// Ports.
		{"gpu01:0: 0", `bad port "0"`, ""},
		{"gpu01:65536:", `bad port "65536"`, ""},
		{"gpu01:-1:", `bad port "-1"`, ""},
		{"gpu01:ssh: 0", `bad port "ssh"`, ""},
		{"gpu01:0,1:22", `bad port "0,1"`, ""},
		{"gpu01::0", "nothing between two colons", ""},
		// Users and names.
		{"@gpu01", "no user before the @", ""},
		{"-l@gpu01", `bad user "-l"`, "ssh config"},
		{"a;b@gpu01", `bad user "a;b"`, ""},
		{"a@b@gpu01", `bad user "a@b"`, ""},
		{strings.Repeat("a", 65) + "@h", "bad user", ""},
		{"alice@", "no host name", ""},
		{": 0,1", "no host name", ""},
		{"-oProxyCommand=x", `bad host name "-oProxyCommand=x"`, ""},
		{"-h: 0", `bad host name "-h"`, ""},
		{"/b", "bad host name", ""},
		{"a/: 0", "bad host name", ""},
		{"a//b", "bad host name", ""},
		{"a/-b", "bad host name", ""},
		{"a/../b", "expected something before, between and after its dots", ""},
		{"a/./b", "expected something before, between and after its dots", ""},
		{"$(reboot): 0", "bad host name", ""},
		{"a|b", "bad host name", ""},
		{"gpu[4-1]", `bad range "[4-1]"`, ""},
		{"a..b", "bad host name", ""},
		{"a.", "bad host name", ""},
		{"0,1", "bad host name", ""},
		{"slots=4", "bad host name", ""},
		{"10.0.0.256: 0", "not an IPv4 address", ""},
		{"10.0.0: 0", "not an IPv4 address", ""},
		{strings.Repeat("a", 254), "bad host name", ""},
		// IPv6.
		{"fd00::4", "IPv6 address without brackets", `"[fd00::4]"`},
		{"fd00::4: 0,1", "without brackets", ""},
		{"fd00::4:0,1", "without brackets", ""},
		{"::1", "without brackets", ""},
		{"bob@fe80::1%eth0", "without brackets", ""},
		{"2001:db8:0:0:0:0:0:1: 0", "without brackets", ""},
		{"[fd00::4: 0", "no closing bracket", ""},
		{"[fd00::x]", "not an IPv6 address", ""},
		{"[10.0.0.1]:22:", "not an IPv6 address", ""},
		{"[fe80::1%a;b]", "not an IPv6 address", ""},
		{"[fd00::4]0", "after the bracket", ""},
		// Words.
		{"gpu01: gpu", `unknown word "gpu", expected GPU ids such as 0,1, UUIDs such as GPU-02ba5a4d, or cpu, cpu*N, ps, slots=N`, ""},
		{"gpu01: cpu ps", `unknown word "ps"`, ""},
		{"gpu01: gpus=4", `unknown word "gpus="`, ""},
		{"gpu01: =4", `unknown word "="`, ""},
		{"gpu01 0,1", "expected a colon", `"gpu01: 0,1"`},
		{"gpu01 ps", "expected a colon", ""},
		{"gpu01: cpu*0", `bad count "0" after cpu*`, ""},
		{"gpu01: cpu*", `bad count ""`, ""},
		{"gpu01: cpu*4097", "bad count", ""},
		{"gpu01 slots=0", `bad count "0" after slots=`, ""},
		{"gpu01 slots=four", "bad count", ""},
		{"gpu01 slots=2 slots=3", "slots= is given twice", ""},
		{"gpu01: 0 slots=2", "slots= after devices", ""},
		{"gpu01: slots=2 0", "after an option", "options after"},
		{"gpu01 max_slots=2", "max_slots= without slots=", ""},
		{"gpu01 slots=2 max_slots=1", "less than slots=2", ""},
		{"gpu01: 0 exclude=0", "exclude= after devices", ""},
		{"gpu01 slots=2 exclude=2", "exclude=2 with slots=2", ""},
		{"gpu01 slots=3 exclude=0,3", "exclude=3 with slots=3, expected ids from 0 to 2", ""},
		{"gpu01 slots=2 exclude=0,1", "leaves none", ""},
		{"gpu01 exclude=", "id missing", ""},
		{"gpu01 addr=gpu02", "is not an address", ""},
		{"gpu01 addr=[10.0.0.1]", "is not an address", ""},
		{"gpu01 addr=0.0.0.0", "cannot be dialled", ""},
		{"gpu01 addr=fe80::1%eth0", "cannot be dialled", ""},
		// Interfaces and variables.
		{"gpu01 nic=", `"" is no name of a network interface`, "ip -brief"},
		{"gpu01 nic=eth0@if5", "is no name of a network interface", "@"},
		{"gpu01 nic=a-name-of-16-bytes", "is no name of a network interface", ""},
		{"gpu01 nic=../eth0", "is no name of a network interface", ""},
		{"gpu01 nic=a nic=b", "nic= is given twice", ""},
		{"gpu01 A=1 A=2", "A= is given twice", ""},
		{"gpu01 A = 1", "space before the = of a variable", ""},
		{"gpu01 X=1 Y=2 Z = 1", "space before the = of a variable", ""},
		{"gpu01 A= 1", `"1" after an option`, ""},
		{"gpu01 A=1 cpu", `"cpu" after an option`, ""},
		{"gpu01 Ab=1", `unknown word "Ab=", expected`, ""},
		{"gpu01 1A=1", `unknown word "1A="`, ""},
		{"A=1", "bad host name", ""},
		{"gpu01 A=a#b", "a quote or a # in it", "quotes"},
		{"gpu01 A=it's", "a quote or a # in it", "quotes"},
		{`gpu01 A="x`, `no closing "`, ""},
		{`gpu01 A="x"y`, "text after the closing quote of A=", "quotes"},
		{"gpu01 A='\x01'", "A= has a control character", "--env-file"},
		{"gpu01 A=\xff", "A= is not UTF-8", "--env-file"},
		// Text.
		{"gpu01:\u00a00", "character '\\u00a0'", "xn--"},
		{"gpu\x1b[2J", "control character", ""},
		{"gpu\x00", "NUL byte", "UTF-8"},
		{"gpu01 # \x00", "NUL byte", ""},
		{"gpu01\rgpu02", "carriage return", ""},
		{"gpu01\ngpu02", "control character", ""},
		{strings.Repeat("#", 4097), "longer than 4096 bytes", ""},
		{"", "expected a host", ""},
		{"# gpu01", "expected a host", ""},
	}
	for _, test := range tests {
		t.Run(test.line, func(t *testing.T) {
			hosts, err := ParseLines([]string{"first", test.line})
			if err == nil {
				t.Fatalf("accepted as %+v", hosts[1])
			}
			if !strings.HasPrefix(err.Error(), "--host:2: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant --host:2: ... %s", err, test.want)
			}
			var advised interface{ Hint() string }
			if test.hint != "" && (!errors.As(err, &advised) || !strings.Contains(advised.Hint(), test.hint)) {
				t.Errorf("no hint with %s in %#v", test.hint, advised)
			}
		})
	}
}

const exampleFile = "\xef\xbb\xbf# hosts\r\n" +
	"10.0.0.1: 0,1\r\n" +
	"\r\n" +
	" \t \n" +
	"  gpu02\t# caf\xc3\xa9 \xff\n" +
	"store1: ps"

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resources.txt")
	if err := os.WriteFile(path, []byte(exampleFile), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts, err := ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Format(hosts), "10.0.0.1: 0,1\ngpu02\nstore1: ps\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, line := range []int{2, 5, 6} {
		if want := (Position{File: path, Line: line}); hosts[i].Pos != want {
			t.Errorf("host %d at %v, want %v", i, hosts[i].Pos, want)
		}
	}
}

func TestWrongFilesAreRejected(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "f: no host in the file, expected"},
		{"only comments", "# a\n\n   # b\n", "f: no host in the file, expected"},
		{"line", "gpu01: 0\n\ngpu02: x,0\n", "f:3: unknown word"},
		{"duplicate", "gpu01: 0\ngpu02\nGPU01: 1\n", "f:3: host GPU01 is named twice, first at f:1"},
		{"duplicate with users", "a@gpu01: 0\nb@gpu01: 1\n", "f:2: host gpu01 is named twice, first at f:1"},
		{"duplicate with port", "gpu01: 0\ngpu01:22: 1\n", "f:2: host gpu01 is named twice, first at f:1"},
		{"duplicate IPv6", "[fd00::4]: 0\n[FD00:0:0::4]: 1\n", "f:2: host [fd00::4] is named twice"},
		{"duplicate mapped", "10.0.0.1\n[::ffff:10.0.0.1]\n", "named twice, first at f:1"},
		{"long line", "gpu01\n" + strings.Repeat("x", 1<<20), "f:2: line is longer than 4096 bytes"},
		{"barely long line", "gpu01\n#" + strings.Repeat("x", maxLine) + "\n", "f:2: line is longer than 4096 bytes"},
		{"UTF-16", "\xff\xfeg\x00p\x00u\x00", "f:1: NUL byte"},
		{"old Mac", "# a\rgpu01\rgpu02\r", "f:1: carriage return inside a line"},
		{"second byte order mark", "gpu01\n\xef\xbb\xbfgpu02", "f:2: character"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hosts, err := Parse(strings.NewReader(test.text), "f")
			if err == nil {
				t.Fatalf("accepted: %d hosts", len(hosts))
			}
			if !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// Parse accepts maxHosts hosts and rejects one more.
func TestTooManyHosts(t *testing.T) {
	read := list{hosts: make([]Host, maxHosts-1)}
	for i, want := range []string{"", "f:2: more than 65536 hosts"} {
		_, err := read.add(fmt.Sprintf("gpu%d: 0", i), Position{File: "f", Line: i + 1})
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("host %d more: %v, want %q", i+1, err, want)
		}
	}
}

func TestLongestLine(t *testing.T) {
	text := "\xef\xbb\xbfgpu01 #" + strings.Repeat("x", maxLine-7) + "\r\ngpu02"
	if hosts, err := Parse(strings.NewReader(text), "f"); err != nil || len(hosts) != 2 {
		t.Errorf("got %v, %v", hosts, err)
	}
}

func TestSameNameOtherPort(t *testing.T) {
	hosts, err := ParseLines([]string{"gpu01:2201: 0", "gpu01:2202: 0"})
	if err != nil || len(hosts) != 2 {
		t.Errorf("got %v, %v", hosts, err)
	}
}

func TestNoLines(t *testing.T) {
	if hosts, err := ParseLines(nil); err == nil {
		t.Errorf("accepted: %v", hosts)
	}
}

func TestUnreadableFileIsReported(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.txt")
	_, err := ParseFile(missing)
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), missing) != 1 {
		t.Errorf("missing file: %v", err)
	}
	folder := t.TempDir()
	if _, err := ParseFile(folder); err == nil || strings.Count(err.Error(), folder) != 1 {
		t.Errorf("folder: %v", err)
	}
	broken := io.MultiReader(strings.NewReader("gpu01\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := Parse(broken, "f"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("failing reader: %v", err)
	}
}

// Join finds a duplicate host in two lists, as Parse does within a file.
func TestJoin(t *testing.T) {
	file, err := Parse(strings.NewReader("gpu01: 0\n[::ffff:10.0.0.1]:22:\n"), "f")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ line, want string }{
		{"gpu01:2222:", ""},
		{"gpu02", ""},
		{"GPU01:22: 1", "--host:1: host GPU01 is named twice, first at f:1"},
		{"b@gpu01", "--host:1: host gpu01 is named twice, first at f:1"},
		{"10.0.0.1", "--host:1: host 10.0.0.1 is named twice, first at f:2"},
	} {
		more, err := ParseLines([]string{test.line})
		if err != nil {
			t.Fatal(err)
		}
		all, err := Join(file, more)
		if test.want == "" {
			if err != nil || len(all) != 3 || all[0].Name != "gpu01" || !reflect.DeepEqual(all[2], more[0]) {
				t.Errorf("%s: %v, %v", test.line, all, err)
			}
		} else if err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.line, err, test.want)
		}
	}
	if all, err := Join(nil, nil); err != nil || len(all) != 0 {
		t.Errorf("nothing: %v, %v", all, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(exampleFile)
	f.Add("alice@10.0.0.3:2222: cpu*2\n[fd00::4%eth0]:22: 0,1 addr=fd00::9\nstore1: ps")
	f.Add("a slots = 4 max_slots=5 exclude=1,0\nb: exclude=3\nc:22:22\nd: 22")
	f.Add("a: GPU-02ba5a4d,MIG-feb88891-0321-5fef-9c87-d4af3b54259e,0\nb: mig-GPU-932bfb2c-849a-2a22-1e84-9eff6bc02b39/7/0\nc exclude=GPU-0")
	f.Add("fd00::4: 0\ngpu01:2222\n:::\n[]\n@\n=")
	f.Add("a: 0 nic=ib0 A=1 B=\"x # y\" C='\\\"'\nb nic = eth0 A= # '\nc:A=0 B = 1\nd addr = A=1")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := Parse(strings.NewReader(text), "f")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("error without place: %v", err)
			}
			return
		}
		again, err := Parse(strings.NewReader(Format(hosts)), "f")
		if err != nil {
			t.Fatalf("%q does not parse: %v", Format(hosts), err)
		}
		for i := range hosts {
			checkHost(t, hosts[i])
			hosts[i].Pos, again[i].Pos = Position{}, Position{}
		}
		if !reflect.DeepEqual(hosts, again) {
			t.Fatalf("%+v became %+v", hosts, again)
		}
	})
}

var plainUUID = regexp.MustCompile(`^(GPU|MIG)-(GPU-)?[0-9a-f-]{1,36}(/[0-9]{1,3}/[0-9]{1,3})?$`)

// checkHost fails the test if h breaks a condition that every parsed host must
// meet.
func checkHost(t *testing.T, h Host) {
	t.Helper()
	if name := h.Name; strings.Contains(name, "//") || name[0] == '/' || name[len(name)-1] == '/' {
		t.Fatalf("name with an empty part in %+v", h)
	}
	for _, text := range []string{h.User, strings.ReplaceAll(h.Name, "/", ""), h.DataAddr, h.Interface} {
		if strings.HasPrefix(text, "-") || strings.ContainsAny(text, " \t\r\n;&|<>$`'\"\\*?[](){}!#~^,/@=\x00") {
			t.Fatalf("unsafe text %q in %+v", text, h)
		}
	}
	for _, id := range slices.Concat(h.Devices.IDs, h.Devices.Excluded) {
		if n, ok := id.Index(); ok && n > maxID || !ok && !plainUUID.MatchString(string(id)) {
			t.Fatalf("impossible id %q in %+v", id, h)
		}
	}
	for _, e := range h.Env {
		if !variableStart().MatchString(e) || strings.ContainsAny(e, "\x00\r\n") {
			t.Fatalf("impossible variable %q in %+v", e, h)
		}
	}
	if h.Name == "" || h.Port < 0 || h.Port > maxPort || h.Devices.none() {
		t.Fatalf("impossible host %+v", h)
	}
}

// Format returns a resource file with one canonical line per host.
func Format(hosts []Host) string {
	var b strings.Builder
	for _, h := range hosts {
		b.WriteString(h.String())
		b.WriteByte('\n')
	}
	return b.String()
}
