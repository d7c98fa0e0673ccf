//go:build linux

// Package checkup is the part of "plx doctor" that an agent runs on a host.
// The agent reports how the host ends processes, and which processes and
// folders earlier jobs have left. It also accepts test connections from the
// agents of the other hosts, and dials some of these agents.
//
// The package changes nothing on the host. The launcher's package doctor
// judges the reports.
package checkup

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
)

// oldJob is the time after its end from which a job counts as old, so that
// "plx doctor" recommends "plx prune".
const oldJob = 30 * 24 * time.Hour

// Agent examines its host for "plx doctor". The zero value is ready to use.
type Agent struct{ id sockets.Identity }

// Report examines this host and returns the findings. If want.Addr is not
// empty, Report also starts a goroutine that answers the other hosts' agents
// until ctx ends.
func (a *Agent) Report(ctx context.Context, want protocol.Checkup) (protocol.HostReport, error) {
	begun := time.Now()
	a.id = sockets.Identity{Secret: want.Secret, HostIndex: want.Index}
	report := examine(ctx, want)
	report.Now, report.Took = begun.UnixNano(), time.Since(begun)
	if want.Addr == "" {
		return report, nil
	}
	ln, err := sockets.ListenRange{Addr: want.Addr, Low: want.PortLow, High: want.PortHigh}.ListenData()
	if err != nil {
		report.Refused = err.Error()
		return report, nil
	}
	report.Addr = ln.Addr().String()
	context.AfterFunc(ctx, func() { ln.Close() })
	go serveExchanges(ctx, ln, a.id)
	return report, nil
}

// DialPeers dials the given agents of other hosts and returns a failure for each
// agent that it could not reach.
func (a *Agent) DialPeers(ctx context.Context, peers []protocol.Peer) ([]protocol.CheckupFailure, error) {
	var mu sync.Mutex
	var failures []protocol.CheckupFailure
	var dialling sync.WaitGroup
	for _, peer := range peers {
		dialling.Go(func() {
			connected, err := a.id.Exchange(ctx, peer)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, protocol.CheckupFailure{Unreached: protocol.Unreached{Peer: peer, Cause: err.Error()}, Connected: connected})
			}
		})
	}
	dialling.Wait()
	return failures, nil
}

// serveExchanges accepts connections of the other hosts' agents and echoes
// what they send, until ln is closed.
func serveExchanges(ctx context.Context, ln net.Listener, id sockets.Identity) {
	gate := id.Gate()
	ln = gate.Listener(ln)
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, sockets.GreetingTimeout)
			defer cancel()
			peer, _, err := gate.Accept(ctx, conn)
			if err != nil {
				conn.Close() // the peer did not prove that it knows the shared secret
				return
			}
			_ = sockets.Echo(peer) // the agent that dialled reports the error
		}()
	}
}

// examine collects the findings about this host that need no connection to
// another host.
func examine(ctx context.Context, want protocol.Checkup) (r protocol.HostReport) {
	var err error
	r.Facts = facts(ctx)
	if r.Links, err = sockets.Links(); err != nil {
		r.Refused = err.Error()
	}
	r.Interface = sockets.Interface(want.Addr)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		r.NoSubreaper = err.Error()
	}
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		r.NoPidfd = err.Error()
	} else {
		unix.Close(fd)
	}
	r.Scope = watchdog.EnterScope(ctx, "doctor")
	r.LogindKills = logindKills("/")
	r.PidsMax = pidsMax("/")
	if r.Strays, r.Old, err = leftovers(time.Now()); err != nil {
		r.Broken = err.Error()
	}
	return r
}

// leftovers returns the ended jobs of which processes still run on this host
// (strays), and the number of jobs that ended longer than oldJob ago.
func leftovers(now time.Time) (strays []protocol.Stray, old int, err error) {
	states, err := jobfolder.States()
	if err != nil {
		return nil, 0, err
	}
	marked, err := process.Marked()
	if err != nil {
		return nil, 0, err
	}
	for f, s := range states {
		if jobfolder.LifeOf(s) != jobfolder.Dead || jobfolder.HostOf(s.Machine) != jobfolder.HostOf(jobfolder.Machine()) {
			continue
		}
		if pids := marked[process.Mark{Job: f.Job(), Folder: f.Name()}]; len(pids) > 0 {
			strays = append(strays, protocol.Stray{Job: f.Job(), PIDs: pids})
		}
		if info, err := os.Stat(f.State()); err == nil && now.Sub(info.ModTime()) > oldJob {
			old++
		}
	}
	slices.SortFunc(strays, func(a, b protocol.Stray) int { return strings.Compare(a.Job, b.Job) })
	return strays, old, nil
}

// logindKills reports whether systemd's logind.conf sets KillUserProcesses to
// yes. root is "/", or a test's folder that stands for the root folder.
func logindKills(root string) (kills bool) {
	files := []string{filepath.Join(root, "etc/systemd/logind.conf")}
	// Drop-in files override logind.conf, so they are read after it.
	for _, folder := range []string{"usr/lib", "run", "etc"} {
		more, _ := filepath.Glob(filepath.Join(root, folder, "systemd/logind.conf.d/*.conf")) // ignore the error, which is always nil because the pattern is valid
		files = append(files, more...)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // a missing file sets nothing
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if strings.TrimSpace(key) == "KillUserProcesses" {
				kills = slices.Contains([]string{"yes", "true", "on", "1"}, strings.ToLower(strings.TrimSpace(value)))
			}
		}
	}
	return kills
}

// pidsMax returns the smallest process limit (pids.max) of this process's
// control group and all its parent groups; 0 means no limit. root is "/", or a
// test's folder that stands for the root folder.
func pidsMax(root string) (least int64) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // ignore an error: without this file there is no limit
	for line := range strings.Lines(string(text)) {
		path, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
			// If the file is missing, this group has no limit.
			limit, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", path, "pids.max"))
			// pids.max without a limit contains "max", which ParseInt rejects.
			if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil && (least == 0 || n < least) {
				least = n
			}
			if path == "/" {
				return least
			}
		}
	}
	return least
}
