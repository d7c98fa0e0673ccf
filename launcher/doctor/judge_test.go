package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// healthy is what a good host prints.
const healthy = `now=1000.250000000
os=Linux
arch=x86_64
kernel=6.1.0
hostname=gpu01
uid=1000
user=alice
files=1048576              1048576              files
processes=63000            63000                processes
step=/home/alice
home.path=/home/alice
home.disk=/dev/sda 1000000 1 90000000 0% /home
home.inodes=/dev/sda 1000000 1 999999 0% /home
step=/tmp
tmp.path=/tmp
tmp.disk=tmpfs 1000000 1 90000000 0% /tmp
tmp.inodes=tmpfs 1000000 1 999999 0% /tmp
done=yes
`

// at is an exchange of half a second around second 1000.
var at = exchange{time.Unix(1000, 0), time.Unix(1000, 5e8)}

// Each change of what a good host prints has one finding.
func TestJudge(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"os=Linux", "os=Darwin", "error platform: it runs Darwin, a host must run Linux"},
		{"home.path=/home/alice\n", "home.path=/home/alice\nhome.missing=yes\n", "error home: the home folder /home/alice is not there"},
		{"home.path=/home/alice\n", "home.path=/home/alice\nhome.unwritable=sh: 1: cannot create /home/alice/.plx-doctor.1: Read-only file system\n", "error home: ~/.plx cannot be written (/home): Read-only file system"},
		{"home.path=/home/alice\n", "home.path=/home/alice\nhome.unwritable=cat: write error: No space left on device \n", "error home: the disk of ~/.plx is full (/home)"},
		{"home.path=/home/alice\n", "home.path=/home/alice\nhome.unwritable=cat: write error: Disk quota exceeded\n", "error home: the quota of ~/.plx is used up (/home)"},
		{"home.path=/home/alice\n", "home.path=/home/alice\nhome.unwritable=\n", "error home: ~/.plx cannot be written (/home): the reason is not known"},
		{"home.path=/home/alice\n", "home.path=/home/alice\nhome.noexec=yes\n", "error home: programs in ~/.plx cannot be executed: is /home mounted noexec?"},
		{"home.disk=/dev/sda 1000000 1 90000000", "home.disk=/dev/sda 1000000 1 65535", "error home: the disk of ~/.plx has 63 MiB left (/home)"},
		{"home.disk=/dev/sda 1000000 1 90000000", "home.disk=/dev/sda 1000000 1 65536", "warning home: the disk of ~/.plx has 64 MiB left (/home)"},
		{"home.disk=/dev/sda 1000000 1 90000000", "home.disk=/dev/sda 1000000 1 2097152", ""},
		{"home.inodes=/dev/sda 1000000 1 999999", "home.inodes=/dev/sda 1000000 1 99", "error home: the disk of ~/.plx has room for 99 more files (inodes)"},
		{"home.inodes=/dev/sda 1000000 1 999999", "home.inodes=/dev/sda 1000000 1 100", "warning home: the disk of ~/.plx has room for 100 more files (inodes)"},
		{"home.inodes=/dev/sda 1000000 1 999999 0%", "home.inodes=/dev/sda 0 0 0 -", ""}, // btrfs counts no inodes
		{"tmp.path=/tmp\n", "tmp.path=/tmp\ntmp.missing=yes\n", "warning tmp: /tmp is not there, and Python needs it"},
		{"tmp.path=/tmp\n", "tmp.path=/tmp\ntmp.unwritable=cat: Permission denied\n", "warning tmp: /tmp cannot be written, and Python needs it: Permission denied"},
		{"tmp.path=/tmp\n", "tmp.path=/tmp\ntmp.noexec=yes\n", "warning tmp: programs in /tmp cannot be executed (noexec?), and torch compiles kernels there"},
		{"tmp.disk=tmpfs 1000000 1 90000000", "tmp.disk=tmpfs 1000000 1 0", "warning tmp: the disk of /tmp has 0 MiB left (/tmp)"},
		{"tmp.inodes=tmpfs 1000000 1 999999", "tmp.inodes=tmpfs 1000000 1 0", "warning tmp: the disk of /tmp has room for 0 more files (inodes)"},
		{"files=1048576              1048576", "files=64 127", "error limits: a process may open 127 files at most (ulimit -Hn)"},
		{"files=1048576              1048576", "files=64 128", "warning limits: a process may open 128 files at most (ulimit -Hn)"},
		{"files=1048576              1048576", "files=1023 1024", "warning limits: a process may open 1023 files (ulimit -n), which loaders of data may use up"},
		{"files=1048576              1048576", "files=1024 unlimited", ""},
		{"files=1048576              1048576", "files=", ""},
		{"processes=63000", "processes=1023", "warning limits: user alice may have 1023 processes and threads (ulimit -u)"},
		{"uid=1000\nuser=alice\nfiles=1048576              1048576              files\nprocesses=63000", "uid=0\nprocesses=1", ""}, // root has no such limit
		{"now=1000.25", "now=1006.25", "warning clock: its clock is 6 s ahead of this machine's"},
		{"now=1000.25", "now=994.25", "warning clock: its clock is 6 s behind this machine's"},
		{"now=1000.250000000", "now=1005.250000000", ""},
		{"now=1000.250000000", "now=1006.%N", "warning clock: its clock is 6 s ahead of this machine's"}, // busybox
		{"now=1000.250000000", "now=1005.%N", ""},
		{"now=1000.250000000", "now=87400.250000000", "warning clock: its clock is 24 hours ahead of this machine's"},
		{"now=1000.250000000", "now=9223372036854775807.0", "warning clock: its clock is 106751991167301 days ahead of this machine's"},
		{"now=1000.250000000", "now=", ""},
		{"os=Linux\n", "os=Linux\nno line of ours\n=\n", ""},
	} {
		text := strings.Replace(healthy, c.old, c.new, 1)
		if text == healthy {
			t.Fatalf("%q is not in what a good host prints", c.old)
		}
		n := notes{host: "h"}
		n.judge(parseFacts(text, at))
		if got := words(n.all); got != c.want {
			t.Errorf("%q: %q, want %q", c.new, got, c.want)
		}
		for _, f := range n.all {
			if f.Remedy == "" {
				t.Errorf("%q has no remedy", f.Text)
			}
		}
	}
	var n notes
	if n.judge(parseFacts(healthy, at)); len(n.all) > 0 {
		t.Errorf("a good host: %v", n.all)
	}
}

// words writes findings as one text.
func words(all []Finding) string {
	var lines []string
	for _, f := range all {
		lines = append(lines, string(f.Level)+" "+string(f.Check)+": "+f.Text)
	}
	return strings.Join(lines, "\n")
}

// A script that was cut off tells where, and what it did not reach is no finding.
func TestPartOfTheFacts(t *testing.T) {
	for i := range strings.TrimSuffix(healthy, "yes\n") {
		f := parseFacts(healthy[:i], at)
		n := notes{host: "h"}
		n.judge(f)
		for _, found := range n.all {
			if found.Check != Clock && found.Check != Platform && found.Check != Limits { // numbers that were cut off
				t.Errorf("%q: %v", healthy[max(0, i-20):i], found)
			}
		}
		if f.complete {
			t.Errorf("complete after %d of %d bytes", i, len(healthy))
		}
	}
	text, _, _ := strings.Cut(healthy, "home.disk")
	if f := parseFacts(text, at); f.step != "/home/alice" {
		t.Errorf("the step is %q", f.step)
	}
}

func FuzzParseFacts(f *testing.F) {
	f.Add(healthy)
	f.Add("home.disk=% % % % % /\nnow=9999999999999999999999")
	f.Fuzz(func(t *testing.T, out string) {
		n := notes{host: "h"}
		n.judge(parseFacts(out, at))
		for _, found := range n.all {
			if strings.ContainsAny(found.Text+found.Remedy, "\n") {
				t.Errorf("a line break in %q", found.Text)
			}
		}
	})
}

func TestGroup(t *testing.T) {
	if got := group(nil, nil); got == nil {
		t.Error("nothing is nil")
	}
	one := func(level Level, check Check, text string, hosts ...string) Finding {
		return Finding{level, check, hosts, text, "do"}
	}
	got := group([]Finding{
		one(Warning, Clock, "late", "h2"),
		one(Error, Home, "full", "h3"),
		one(Warning, Clock, "late", "h1"),
		one(Error, Home, "full", "h2"),
		one(Error, Connection, "down", "h9"),
		one(Warning, Clock, "late", here),
		one(Warning, Clock, "late", "h1"),
		one(Warning, Shell, "noise", "h9"),
	}, []string{"h1", "h2", "h3", "h9"})
	var lines []string
	for _, f := range got {
		lines = append(lines, string(f.Level)+" "+where(f.Hosts)+": "+f.Text)
	}
	want := []string{"error host h9: down", "error hosts h[2-3]: full", "warning host h9: noise", "warning hosts this machine,h[1-2]: late"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q\nwant %q", lines, want)
	}
}
