//go:build linux

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestOOMKills(t *testing.T) {
	for text, want := range map[string]int64{
		"pgfault 7\noom_kill 3\nnuma_hit 9\n": 3,
		"oom_kill_x 3\n":                      0,
		"oom_kill many\n":                     0,
		"":                                    0,
	} {
		if got := oomKills(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if hostKills() < 0 {
		t.Error("this kernel's count is negative")
	}
}

func TestParseOOMRecord(t *testing.T) {
	const text = "Killed process 6052 (python3) total-vm:118968kB, anon-rss:30464kB, file-rss:6508kB, shmem-rss:0kB, UID:0 pgtables:132kB oom_score_adj:0\n"
	const line = "the kernel killed python3 (pid 6052), which had 29 MiB"
	for record, want := range map[string]string{
		"3,5234,2584379476,-;Memory cgroup out of memory: " + text:                        line + ", because its control group reached its memory limit",
		"3,5234,2584379476,-;Out of memory: " + text:                                      line,
		"3,5234,2584379476,-;Out of memory: " + strings.Replace(text, "6052", "60521", 1): "",
		// Any process that may write to /dev/kmsg can write such a line.
		"12,5234,2584379476,-;I say: Out of memory: " + text: "",
		"3,5234,soon,-;Out of memory: " + text:               "",
		"3;Out of memory: " + text:                           "",
		"":                                                   "",
	} {
		at, got := parseOOMRecord(record, 6052)
		if got != want || want != "" && at.Truncate(time.Second) != 2584*time.Second {
			t.Errorf("%q: %q at %s, want %q", record, got, at, want)
		}
	}
}

// The kernel kills a process whose control group has no memory left, and
// Killed proves that.
func TestKilledProvesOOMKill(t *testing.T) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	before := findGroup(string(own))
	if os.Getuid() != 0 || before.eventsFile == "" {
		t.Skip("needs root and control groups for memory")
	}
	top := groupRoot // use the root group, because a group can be created there even if the current group has processes
	if strings.Contains(before.eventsFile, "/memory/") {
		top += "/memory"
	}
	dir, err := os.MkdirTemp(top, "plx-test-")
	if err != nil {
		t.Skip("no control group can be made here: ", err)
	}
	defer os.Remove(dir) // its processes have ended
	g := group{name: "/" + filepath.Base(dir), eventsFile: filepath.Join(dir, filepath.Base(before.eventsFile)), limitFile: filepath.Join(dir, filepath.Base(before.limitFile))}
	if err := os.WriteFile(g.limitFile, []byte(strconv.Itoa(16<<20)), 0); err != nil {
		t.Skip("the group cannot be limited: ", err)
	}
	m := Memory{host: hostKills(), group: g, kills: g.kills(), at: uptime()}
	// Bash stores the output of head in its own memory, so the kernel kills
	// bash.
	cmd := exec.Command("bash", "-c", "echo $$ >"+dir+"/cgroup.procs; x=$(head -c 99M /dev/zero | tr '\\0' x)")
	if err := cmd.Run(); err == nil {
		t.Skip("the limit does not hold here")
	}
	kills, proof := m.Killed(cmd.Process.Pid)
	byLog := "the kernel killed bash (pid " + strconv.Itoa(cmd.Process.Pid) + "), which had "
	byGroup := "the kernel killed 1 process of its control group " + g.name + ", whose memory limit is 16 MiB"
	if kills < 1 || !strings.HasPrefix(proof, byLog) && proof != byGroup {
		t.Errorf("%d kills: %q, want %q or %q", kills, proof, byLog, byGroup)
	}
	if line := oomRecord(cmd.Process.Pid, m.at+time.Hour); line != "" {
		t.Errorf("an old record counts: %q", line)
	}
	later := Memory{host: hostKills(), group: g, kills: g.kills(), at: uptime() + time.Hour}
	if kills, proof := later.Killed(cmd.Process.Pid); kills != 0 || proof != "" {
		t.Errorf("nothing was killed since: %d, %q", kills, proof)
	}
}
