package doctor

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// healthy returns the facts of a host without problems.
func healthy() Facts {
	f := Facts{HostFacts: protocol.HostFacts{OS: "Linux", Arch: "x86_64", Kernel: "6.1.0", HostName: "gpu01", UID: 1000, User: "alice",
		OpenFiles: protocol.Limit{Soft: 1 << 20, Hard: 1 << 20}, Processes: protocol.Limit{Soft: 63000, Hard: 63000},
		Home: protocol.Folder{Path: "/home/alice/.plx", FreeKiB: 90_000_000, FreeInodes: 999_999, Mount: "/home"},
		Tmp:  protocol.Folder{Path: "/tmp", FreeKiB: 90_000_000, FreeInodes: 999_999, Mount: "/tmp"},
		Shm:  protocol.Folder{Path: "/dev/shm", SizeKiB: 33_000_000, FreeKiB: 33_000_000, FreeInodes: 999_999, Mount: "/dev/shm"}}}
	return f
}

// Each single deviation from a healthy host gives one finding.
func TestJudge(t *testing.T) {
	files := func(soft, hard int64) func(*Facts) {
		return func(f *Facts) { f.OpenFiles = protocol.Limit{Soft: soft, Hard: hard} }
	}
	const sharers = ", and data loaders of PyTorch and NCCL share memory there"
	for _, c := range []struct {
		change func(*Facts)
		want   string
	}{
		{func(f *Facts) { f.Home.FreeKiB = 65535 }, "error home: the disk of ~/.plx has 63 MiB left (/home)"},
		{func(f *Facts) { f.Home.FreeKiB = 65536 }, "warning home: the disk of ~/.plx has 64 MiB left (/home)"},
		{func(f *Facts) { f.Home.FreeKiB = 2097152 }, ""},
		{func(f *Facts) { f.Home.FreeInodes = 99 }, "error home: the disk of ~/.plx has room for 99 more files (inodes)"},
		{func(f *Facts) { f.Home.FreeInodes = 100 }, "warning home: the disk of ~/.plx has room for 100 more files (inodes)"},
		{func(f *Facts) { f.Home.FreeInodes = protocol.NotKnown }, ""}, // btrfs counts no inodes
		{func(f *Facts) { f.Tmp.Missing = true }, "warning tmp: /tmp is not there, and Python needs it"},
		{func(f *Facts) { f.Tmp.Unwritable = "permission denied" }, "warning tmp: /tmp cannot be written, and Python needs it: permission denied"},
		{func(f *Facts) { f.Tmp.NoExec = true }, "warning tmp: programs in /tmp cannot be executed (noexec?), and torch compiles kernels there"},
		{func(f *Facts) { f.Tmp.FreeKiB = 0 }, "warning tmp: the disk of /tmp has 0 MiB left (/tmp)"},
		{func(f *Facts) { f.Tmp.FreeInodes = 0 }, "warning tmp: the disk of /tmp has room for 0 more files (inodes)"},
		{func(f *Facts) { f.Shm.SizeKiB, f.Shm.FreeKiB = 65536, 65000 }, "warning shm: /dev/shm is small (64 MiB, 63 MiB left)" + sharers},
		{func(f *Facts) { f.Shm.FreeKiB = 0 }, "warning shm: /dev/shm is full (31 GiB, 0 left)" + sharers},
		{func(f *Facts) { f.Shm.Missing = true }, "warning shm: /dev/shm is not there" + sharers},
		{func(f *Facts) { f.Shm.Unwritable = "permission denied" }, "warning shm: /dev/shm cannot be written: permission denied" + sharers},
		{files(64, 127), "error limits: a process may open 127 files at most (ulimit -Hn)"},
		{files(64, 128), "warning limits: a process may open 128 files at most (ulimit -Hn)"},
		{files(1023, 1024), "warning limits: a process may open 1023 files (ulimit -n), which loaders of data may use up"},
		{files(1024, protocol.Unlimited), ""},
		{files(protocol.NotKnown, protocol.NotKnown), ""},
		{func(f *Facts) { f.Processes.Soft = 1023 }, "warning limits: user alice may have 1023 processes and threads (ulimit -u)"},
		{func(f *Facts) { f.UID, f.Processes.Soft = 0, 1 }, ""}, // the process limit does not apply to root
		{func(f *Facts) { f.Skew = 6 }, "warning clock: its clock is 6 s ahead of this machine's"},
		{func(f *Facts) { f.Skew = -6 }, "warning clock: its clock is 6 s behind this machine's"},
		{func(f *Facts) { f.Skew, f.SkewError = 5.2, 0.25 }, ""},
		{func(f *Facts) { f.Skew = 86400 }, "warning clock: its clock is 24 hours ahead of this machine's"},
		{func(f *Facts) { f.Skew, f.SkewError = 86400, -1 }, ""},
	} {
		f := healthy()
		c.change(&f)
		n := notes{host: "h"}
		n.judge(f)
		if got := words(n.all); got != c.want {
			t.Errorf("%+v: %q, want %q", f, got, c.want)
		}
		for _, f := range n.all {
			if f.Remedy == "" {
				t.Errorf("%q has no remedy", f.Text)
			}
		}
	}
	var n notes
	if n.judge(healthy()); len(n.all) > 0 {
		t.Errorf("a good host: %v", n.all)
	}
}

// Each reason why the agent cannot be installed gives a finding with the right
// check and remedy.
func TestUnplaced(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&bootstrap.RefusedError{Text: "the home folder /x is not there", NoHome: true}, "error home: the home folder /x is not there"},
		{fmt.Errorf("send plx: %w", &bootstrap.RefusedError{Text: "the home folder is read-only: cat: x"}), "error home: send plx: the home folder is read-only: cat: x"},
		{&protocol.Failure{Text: "the home folder's file system is full: write x"}, "error home: the home folder's file system is full: write x"},
		{&hosts.PlatformError{Platform: envsync.Platform{OS: "darwin", Arch: "arm64"}}, "error platform: it runs darwin/arm64, a host must run linux"},
		{fmt.Errorf("no command ran within 25s: %w", hosts.ErrStuck), "error shell: no command ran within 25s: ForceCommand of its SSH server, the login shell, its start-up files or the disk of the home may hang"},
		{&bootstrap.NoReplyError{Err: io.EOF}, "error shell: the shell has ended, and has not answered"},
		{errors.New("no agent for linux/s390x"), "error agent: plx does not run there: no agent for linux/s390x"},
	} {
		n := notes{host: "h"}
		n.unplaced(c.err)
		if got := words(n.all); got != c.want || n.all[0].Remedy == "" {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The host's clock is compared with the middle between request and reply.
func TestClockSkew(t *testing.T) {
	asked := time.Unix(1000, 0)
	answered := asked.Add(10*time.Second + 500*time.Millisecond)
	f := factsOf(protocol.HostReport{Facts: &protocol.HostFacts{}, Now: asked.Add(6250 * time.Millisecond).UnixNano(), Took: 10 * time.Second}, asked, answered)
	if math.Abs(f.Skew-6) > 1e-9 || f.SkewError != 0.25 {
		t.Errorf("%v s ahead, give or take %v", f.Skew, f.SkewError)
	}
	if f := factsOf(protocol.HostReport{Facts: &protocol.HostFacts{}, Took: time.Hour}, asked, answered); f.SkewError != 0 {
		t.Errorf("a host that says that it took longer than it did: %+v", f)
	}
	if factsOf(protocol.HostReport{}, asked, answered) != nil {
		t.Error("facts of a report without any")
	}
}

// words returns findings as one text.
func words(all []Finding) string {
	var lines []string
	for _, f := range all {
		lines = append(lines, string(f.Level)+" "+string(f.Check)+": "+f.Text)
	}
	return strings.Join(lines, "\n")
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
		one(Warning, Clock, "late", thisMachine),
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
