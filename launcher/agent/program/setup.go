//go:build linux

package program

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// Descriptors to which the shell that runs a --setup line writes its state
// before and after the line.
const (
	beforeFD = 3
	afterFD  = 4
)

// Setup returns a command that runs a --setup line in the folder dir. The
// command writes the state that child processes inherit (environment, working
// folder, umask, limits) to descriptor beforeFD before the line, and to
// afterFD after it. Compare reads both.
func Setup(line string, env []string, dir string) Command {
	// In this script, /proc/self is the process of cat, which has inherited
	// the shell's present environment. The shell's own /proc/PID/environ only
	// shows the variables with which the shell started.
	const state = `{ printf '%%s\0' "$(pwd -P)" && command -p cat /proc/self/environ /proc/self/limits /proc/self/status; } >&%d || exit` + "\n"
	before, after := fmt.Sprintf(state, beforeFD), fmt.Sprintf(state, afterFD)
	script := before + evaluated(line, " 3>&- 4>&-") + after
	c := Command{dir: dir, env: env, name: "--setup", Path: "/bin/sh", Argv: []string{"sh", "-c", script, subject}}
	path, _ := Lookup(env, "PATH")
	if shell, err := find("bash", path, dir); err == nil {
		c.Path, c.Argv = shell, []string{"bash", "--noprofile", "--norc", "-c", script, subject}
	}
	c.added = len(c.Argv)
	return c
}

// States holds two temporary files. The command that Setup returns runs a
// --setup line. It writes its environment and limits to the first file before
// that line, and to the second file after it. The files have no name on disk.
type States [2]*os.File

// NewStates creates the two temporary files in the folder dir, and removes
// their names.
func NewStates(dir string) (s States, err error) {
	for i := range s {
		if s[i], err = os.CreateTemp(dir, ".setup-*"); err != nil {
			s.Close()
			return s, err
		}
		if err = os.Remove(s[i].Name()); err != nil {
			s.Close()
			return s, err
		}
	}
	return s, nil
}

// Close closes both files, which deletes them.
func (s States) Close() {
	for _, f := range s {
		if f != nil {
			f.Close() // Close cannot lose data, because the file is deleted anyway
		}
	}
}

// maxState is the maximum number of bytes that Compare reads from each file.
const maxState = 4 << 20

// Compare returns what the --setup line has changed. The command that Setup
// returned must have ended. names lists variables that the line has tried to
// change although plx sets them for each task itself; these changes are
// ignored.
func (s States) Compare() (changed jobfolder.Setup, names []string, err error) {
	var states [2]state
	for i, f := range s {
		raw, err := io.ReadAll(io.NewSectionReader(f, 0, maxState))
		if err == nil && i == 1 && len(raw) == 0 {
			err = errors.New("the line has ended the shell: do not use exit or exec in it")
		}
		if err == nil {
			states[i], err = parseState(raw)
		}
		if err != nil {
			return changed, nil, fmt.Errorf("--setup: %w", err)
		}
	}
	changed, names = states[0].compare(states[1])
	return changed, names, nil
}

// state is the part of a process's state that child processes inherit.
type state struct {
	env    map[string]string
	dir    string
	mask   int
	limits map[int]jobfolder.Limit
}

func parseState(raw []byte) (s state, err error) {
	end := bytes.LastIndexByte(raw, 0)
	if end < 0 {
		return s, errors.New("the shell's state is not complete")
	}
	fields := strings.Split(string(raw[:end]), "\x00")
	s = state{env: map[string]string{}, dir: fields[0], mask: -1, limits: map[int]jobfolder.Limit{}}
	for _, e := range fields[1:] {
		if name, value, ok := strings.Cut(e, "="); ok {
			s.env[name] = value
		}
	}
	for line := range strings.Lines(string(raw[end+1:])) {
		if octal, ok := strings.CutPrefix(line, "Umask:"); ok {
			mask, err := strconv.ParseInt(strings.TrimSpace(octal), 8, 32)
			if err != nil {
				return s, fmt.Errorf("the shell's state: %w", err)
			}
			s.mask = int(mask)
		}
		for name, resource := range limitNames {
			if rest, ok := strings.CutPrefix(line, name+"  "); ok {
				s.limits[resource] = parseLimit(resource, strings.Fields(rest))
			}
		}
	}
	return s, nil
}

// limitNames maps the names in /proc/PID/limits to the numbers of the
// resources.
var limitNames = map[string]int{
	"Max cpu time": unix.RLIMIT_CPU, "Max file size": unix.RLIMIT_FSIZE, "Max data size": unix.RLIMIT_DATA,
	"Max stack size": unix.RLIMIT_STACK, "Max core file size": unix.RLIMIT_CORE, "Max resident set": unix.RLIMIT_RSS,
	"Max processes": unix.RLIMIT_NPROC, "Max open files": unix.RLIMIT_NOFILE, "Max locked memory": unix.RLIMIT_MEMLOCK,
	"Max address space": unix.RLIMIT_AS, "Max file locks": unix.RLIMIT_LOCKS, "Max pending signals": unix.RLIMIT_SIGPENDING,
	"Max msgqueue size": unix.RLIMIT_MSGQUEUE, "Max nice priority": unix.RLIMIT_NICE, "Max realtime priority": unix.RLIMIT_RTPRIO,
	"Max realtime timeout": unix.RLIMIT_RTTIME,
}

// parseLimit parses the soft and the hard limit of a line of /proc/PID/limits.
// A field that is not a number, such as "unlimited", means no limit.
func parseLimit(resource int, fields []string) jobfolder.Limit {
	values := [2]uint64{unix.RLIM_INFINITY, unix.RLIM_INFINITY}
	for i := range min(len(fields), len(values)) {
		if n, err := strconv.ParseUint(fields[i], 10, 64); err == nil {
			values[i] = n
		}
	}
	return jobfolder.Limit{Resource: resource, Soft: values[0], Hard: values[1]}
}

// shellVariables are variables that every shell changes by itself. Their
// changes do not come from the --setup line.
var shellVariables = []string{"PWD", "OLDPWD", "SHLVL", "_"}

func (s state) compare(after state) (changed jobfolder.Setup, ours []string) {
	for _, name := range slices.Sorted(maps.Keys(after.env)) {
		value := after.env[name]
		if before, had := s.env[name]; had && before == value || slices.Contains(shellVariables, name) {
			continue
		}
		if isSetByPlx(name) {
			ours = append(ours, name)
			continue
		}
		changed.Env = append(changed.Env, protocol.Raw(name+"="+value))
	}
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		if _, has := after.env[name]; !has && !isSetByPlx(name) && !slices.Contains(shellVariables, name) {
			changed.Unset = append(changed.Unset, name)
		}
	}
	if after.dir != s.dir {
		changed.Dir = protocol.Raw(after.dir)
	}
	if after.mask >= 0 && after.mask != s.mask {
		changed.Mask = &after.mask
	}
	for _, resource := range slices.Sorted(maps.Keys(after.limits)) {
		if limit := after.limits[resource]; limit != s.limits[resource] {
			changed.Limits = append(changed.Limits, limit)
		}
	}
	return changed, ours
}

// isSetByPlx reports whether plx itself sets the variable name for each task.
func isSetByPlx(name string) bool { return slices.Contains(contractNames(), name+"=") }

// ResolveAfterSetup is like Resolve, for a host on which --setup has already
// run. It applies the changes s that --setup has made to the environment and
// the working folder, and returns both. The returned command also sets the
// limits and the umask that --setup has changed.
func ResolveAfterSetup(s jobfolder.Setup, want protocol.Command, env []string, dir string) (c Command, _ []string, _ string, err error) {
	env, dir = afterSetup(s, env, dir)
	if c, err = Resolve(want, env, dir); err == nil {
		c, err = c.limited(s)
	}
	return c, env, dir, err
}

// afterSetup applies the changes that --setup has made to a task's environment
// and working folder.
func afterSetup(s jobfolder.Setup, env []string, dir string) ([]string, string) {
	for _, name := range s.Unset {
		env = Without(env, name+"=")
	}
	for _, e := range s.Env {
		env = append(env, string(e))
	}
	if s.Dir != "" {
		dir = string(s.Dir)
	}
	return lastWins(append(env, "PWD="+dir)), dir
}

// limited returns a command that applies the limits and the umask of s. This
// command is "plx agent become", which sets limits and umask and then executes
// c.
func (c Command) limited(s jobfolder.Setup) (Command, error) {
	if len(s.Limits) == 0 && s.Mask == nil {
		return c, nil
	}
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	argv := []string{"plx", "agent", "become"}
	for _, l := range s.Limits {
		argv = append(argv, fmt.Sprintf("%d:%d:%d", l.Resource, l.Soft, l.Hard))
	}
	if s.Mask != nil {
		argv = append(argv, fmt.Sprintf("mask:%d", *s.Mask))
	}
	argv = append(argv, "--", c.Path)
	c.added += len(argv)
	c.Path, c.Argv = self, append(argv, c.Argv...)
	return c, nil
}

// Become implements "plx agent become CHANGE... -- PATH ARGV...". It sets
// limits and the umask of this process as the changes say, and then replaces
// this process by the program PATH.
func Become(args []string) error {
	end := slices.Index(args, "--")
	if end < 0 || len(args) < end+3 {
		return errors.New("become: want -- and a command")
	}
	for _, change := range args[:end] {
		if err := become(change); err != nil {
			return fmt.Errorf("%s, as --setup has it: %w", change, err)
		}
	}
	c := Command{Path: args[end+1], Argv: args[end+2:], env: os.Environ(), name: args[end+1], added: 1}
	return c.Run(func() error { return syscall.Exec(c.Path, c.Argv, c.env) })
}

func become(change string) error {
	var resource int
	var limit unix.Rlimit
	if mask, err := fmt.Sscanf(change, "mask:%d", &resource); err == nil && mask == 1 {
		unix.Umask(resource)
		return nil
	}
	if _, err := fmt.Sscanf(change, "%d:%d:%d", &resource, &limit.Cur, &limit.Max); err != nil {
		return err
	}
	return unix.Setrlimit(resource, &limit)
}
