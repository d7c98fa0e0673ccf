//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/plural"
)

// Memory is what the kernel had counted of processes that it killed for want of memory
// when the value was read.
type Memory struct {
	host  int64         // processes of the host; 0 if the kernel does not count them
	group group         // control group of this process and those that it starts
	kills int64         // processes of the group
	at    time.Duration // since the host booted
}

// ReadMemory reads the counts.
func ReadMemory() Memory {
	own, _ := os.ReadFile("/proc/self/cgroup") // without it no group is found
	m := Memory{host: hostKills(), group: findGroup(string(own)), at: uptime()}
	m.kills = m.group.kills()
	return m
}

// Killed tells how many processes the kernel of the host has killed for want of memory
// since m was read. proof says that a process with this pid, which was ended by SIGKILL, is
// one of them; "": it may be another one.
func (m Memory) Killed(pid int) (kills int64, proof string) {
	kills = hostKills() - m.host
	if line := logged(pid, m.at); line != "" {
		return kills, line
	}
	if n := m.group.kills() - m.kills; n > 0 {
		return kills, fmt.Sprintf("the kernel killed %s of its control group %s%s", plural.Count(int(n), "process"), m.group.name, m.group.limit())
	}
	return kills, ""
}

// group is a control group for memory, of version 1 or 2.
type group struct {
	name   string // as /proc/self/cgroup has it
	events string // file with a line "oom_kill N"; "": no group was found
	most   string // file with the limit in bytes
}

// groupRoot is where systems have the file systems of control groups.
const groupRoot = "/sys/fs/cgroup"

// findGroup finds the group that a text in the form of /proc/self/cgroup names. A container
// may see its own group as the root.
func findGroup(own string) group {
	for line := range strings.Lines(own) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		dir, events, most := groupRoot, "memory.events", "memory.max"
		switch {
		case fields[1] == "memory":
			dir, events, most = groupRoot+"/memory", "memory.oom_control", "memory.limit_in_bytes"
		case fields[0] != "0":
			continue
		}
		for _, below := range []string{fields[2], "/"} {
			g := group{name: fields[2], events: path.Join(dir, below, events), most: path.Join(dir, below, most)}
			if _, err := os.Stat(g.events); err == nil {
				return g
			}
		}
	}
	return group{}
}

// kills is the number of processes of the group that the kernel has killed for want of
// memory; 0 if it does not count them.
func (g group) kills() int64 {
	text, err := os.ReadFile(g.events)
	if err != nil {
		return 0
	}
	return oomKills(string(text))
}

// limit says how much memory the group may have; "": as much as the host has.
func (g group) limit() string {
	text, err := os.ReadFile(g.most)
	if err != nil {
		return ""
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 || n >= 1<<60 { // version 1 has no word for "no limit"
		return ""
	}
	return fmt.Sprintf(", which may have %d MiB", n>>20)
}

// initialPIDs is the inode of the first pid namespace: a number of the kernel's.
const initialPIDs = 0xEFFFFFFC

// clockMargin is by how much the clock of the kernel's log may be behind the monotonic one.
const clockMargin = 10 * time.Second

// maxLogRecords bounds how much of the kernel's log is read.
const maxLogRecords = 100_000

// logged returns what the kernel's log has on a process that was killed for want of memory
// after a time; "": nothing, or this process may not read the log. The log has the pids of
// the first namespace only.
func logged(pid int, after time.Duration) string {
	var ns unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &ns) != nil || ns.Ino != initialPIDs {
		return ""
	}
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd) // it was only read
	found, record := "", make([]byte, 8<<10)
	for range maxLogRecords {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE): // records were overwritten meanwhile
		case err != nil || n <= 0:
			return found
		default:
			if at, line := killRecord(string(record[:n]), pid); line != "" && at+clockMargin >= after {
				found = line
			}
		}
	}
	return found
}

// killed matches what the kernel logs of a process that it has killed for want of memory.
var killed = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((?:Memory cgroup out|Out) of memory): Killed process (\d+) \(([^\n]{0,15})\).* anon-rss:(\d+)kB`)
})

// killRecord reads a record of /dev/kmsg. It returns the time since the boot, and a line on
// the process with this pid; "": the record is about something else.
func killRecord(record string, pid int) (at time.Duration, line string) {
	head, text, _ := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	m := killed().FindStringSubmatch(text)
	if m == nil || m[2] != strconv.Itoa(pid) || len(fields) < 3 {
		return 0, ""
	}
	micros, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return 0, ""
	}
	kib, _ := strconv.ParseInt(m[4], 10, 64) // at most too many digits, and then the largest number
	line = fmt.Sprintf("the kernel killed %s (pid %d), which had %d MiB", m[3], pid, kib>>10)
	if strings.HasPrefix(m[1], "Memory cgroup") {
		line += ", at the limit of its control group"
	}
	return time.Duration(micros) * time.Microsecond, line
}

// uptime is the time since the host booted, by the clock that the kernel's log has.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// hostKills returns how many processes the kernel of the host has killed for want of
// memory since it booted, those of all containers included. It returns 0 if the kernel
// does not count them.
func hostKills() int64 {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0 // without /proc plx would not have come this far
	}
	return oomKills(string(text))
}

func oomKills(vmstat string) int64 {
	for line := range strings.Lines(vmstat) {
		if n, found := strings.CutPrefix(line, "oom_kill "); found {
			kills, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			if err != nil {
				return 0 // no count of this kernel's
			}
			return kills
		}
	}
	return 0
}
