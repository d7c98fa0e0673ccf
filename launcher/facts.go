package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/jobs"
)

// gitTime is how long a launch waits for git commands in the program's
// directory.
const gitTime = 5 * time.Second

// revision is the git state of the program's directory.
type revision struct {
	*tree.Revision        // nil if the directory is in no git repository
	diff           []byte // output of git diff; nil without --keep-diff
	err            error  // why there is no diff; nil if no diff was requested
}

// readRevision starts git in the background. It reads the revision of the
// folder of --workdir. Without --workdir, it reads that of the program's
// directory or, if there is none, of the current directory.
func readRevision(ctx context.Context, cfg Config) <-chan revision {
	found := make(chan revision, 1)
	dirs := []string{cfg.Workdir}
	if cfg.Workdir == "" {
		dirs = []string{"."}
		if strings.ContainsRune(cfg.Program, filepath.Separator) {
			dirs = []string{filepath.Dir(cfg.Program), "."}
		}
	}
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, gitTime, fmt.Errorf("git has not answered within %s", gitTime))
		defer cancel()
		var r revision
		dir := ""
		for len(dirs) > 0 && r.Revision == nil {
			if dir, r.err = filepath.Abs(dirs[0]); r.err == nil {
				r.Revision = tree.ReadRevision(ctx, dir)
			}
			dirs = dirs[1:]
		}
		switch {
		case !cfg.KeepDiff:
		case r.Revision == nil:
			r.err = errors.New("the program's folder is in no git repository with a commit")
		default:
			r.diff, r.err = tree.Diff(ctx, dir, jobs.MaxDiff)
		}
		found <- r
	}()
	return found
}

// keepRun stores the job's command, versions and git revision on this machine,
// for plx report. If it cannot store them, it prints a note and returns nil.
func (l *launch) keepRun(ctx context.Context) error {
	var git revision
	select {
	case git = <-l.revision:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if git.err != nil && l.cfg.KeepDiff {
		l.printer.Printf("note: --keep-diff: %v", git.err)
	}
	words := append([]string{cmp.Or(l.program.Command, l.cfg.Program)}, l.cfg.Args...)
	run := jobs.Launched{Command: quoted(redact(words)), Facts: l.facts(git.Revision), Diff: git.diff}
	if err := run.Save(l.job); err != nil {
		l.printer.Printf("note: plx report will not know the command and versions of this job: %v", err)
	}
	return nil
}

// quoted joins words into a shell command line, with quotes where the shell
// needs them.
func quoted(words []string) string {
	var out []string
	for _, w := range words {
		if strings.ContainsFunc(strings.ReplaceAll(w, hidden, ""), func(r rune) bool { return !strings.ContainsRune(plain, r) }) || w == "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

// plain lists the characters that need no quotes in a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"

// facts returns the settings, versions and hardware of this launch, so that
// plx report can compare two launches.
func (l *launch) facts(git *tree.Revision) (all []jobs.Fact) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, jobs.Fact{Name: name, Value: value})
		}
	}
	add("launched with", quoted(redact(l.cfg.CommandLine)))
	add("plx", l.cfg.Version)
	if git != nil {
		add("git commit", git.Commit)
		add("git branch", git.Branch)
		add("git changes", changes(git.Changed))
	}
	for _, p := range l.platforms() {
		if program, sent := l.artifacts.Program(p); sent {
			add("program ("+p.String()+")", "sha256 "+program.Sum)
		}
	}
	add("hosts", console.Fold(l.names()))
	add("workers", strconv.Itoa(l.placed.Workers))
	add("servers", strconv.Itoa(l.placed.Servers))
	for _, of := range []struct {
		name string
		of   func(i int) string
	}{
		{"GPUs", func(i int) string { return models(l.agents[i].Report.GPUs) }},
		{"GPU driver", func(i int) string { return l.agents[i].Report.Driver }},
		{"CPU", func(i int) string {
			r := l.agents[i].Report
			return strings.TrimSpace(fmt.Sprintf("%d x %s", r.CPUs, r.CPUModel))
		}},
		{"kernel", func(i int) string {
			return strings.TrimSpace(l.agents[i].Report.Kernel + " " + l.agents[i].Report.Arch)
		}},
		{"BLAS", func(i int) string { return l.agents[i].Report.BLAS }},
	} {
		add(of.name, l.perHost(of.of))
	}
	add("setup", redactText(l.cfg.Setup))
	for _, spec := range l.cfg.Env {
		name, _, _ := strings.Cut(spec, "=")
		i := slices.IndexFunc(l.cfg.environ, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		switch {
		case isSecret(name):
			add("variable "+name, hidden)
		case i >= 0:
			add("variable "+name, strings.TrimPrefix(l.cfg.environ[i], name+"="))
		}
	}
	for _, file := range l.cfg.EnvFiles {
		add("variables", "of "+file+", not recorded")
	}
	return all
}

// models counts GPUs by model name, as in "8 x NVIDIA H200".
func models(gpus []gpuprobe.GPU) string {
	var names []string
	count := map[string]int{}
	for _, g := range gpus {
		if count[g.Name]++; count[g.Name] == 1 {
			names = append(names, g.Name)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d x %s", count[name], name)
	}
	return strings.Join(names, ", ")
}

func changes(n int) string {
	switch {
	case n < 0:
		return "not known: git took too long"
	case n == 0:
		return "none"
	}
	return plural.Count(n, "file")
}

// names returns the names of the hosts that run tasks.
func (l *launch) names() (names []string) {
	for _, a := range l.agents {
		names = append(names, a.Name())
	}
	return names
}

// perHost calls the function of for each host. If all hosts have the same
// value, it returns that value. If not, it returns each value with the names
// of its hosts.
func (l *launch) perHost(of func(i int) string) string {
	var values []string
	hosts := map[string][]string{}
	for i, a := range l.agents {
		value := of(i)
		if value == "" {
			value = "none"
		}
		if hosts[value] == nil {
			values = append(values, value)
		}
		hosts[value] = append(hosts[value], a.Name())
	}
	if len(values) == 1 {
		return strings.TrimPrefix(values[0], "none")
	}
	for i, v := range values {
		values[i] = console.Fold(hosts[v]) + ": " + v
	}
	return strings.Join(values, "; ")
}

// platforms returns the operating system and architecture of the hosts that
// run tasks, without duplicates.
func (l *launch) platforms() (all []envsync.Platform) {
	for _, h := range l.agents {
		if !slices.Contains(all, h.Facts.Platform) {
			all = append(all, h.Facts.Platform)
		}
	}
	return all
}
