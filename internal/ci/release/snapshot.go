package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// snapshot is a release that is being made.
type snapshot struct {
	config
	out      string    // folder of the release, absolute
	version  string    // without a leading v
	commit   time.Time // when the commit was made
	targets  []string  // platforms that are made; empty means all
	programs []program
	made     []string // names of the released files
}

// program is one build for one platform.
type program struct {
	build    string // its ID
	os, arch string
	path     string
}

func (p program) target() string { return p.os + "/" + p.arch }

// newSnapshot makes an empty folder out.
func newSnapshot(ctx context.Context, c config, out string) (*snapshot, error) {
	out, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	date, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%cI").Output()
	if err != nil {
		return nil, fmt.Errorf("git log: date of the commit: %w", err)
	}
	s := &snapshot{config: c, out: out, version: c.Snapshot.VersionTemplate}
	if s.commit, err = time.Parse(time.RFC3339, strings.TrimSpace(string(date))); err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty", out)
	}
	return s, os.MkdirAll(out, 0o755)
}

// fill fills a template with what goreleaser calls the version, the commit and the
// program by, and with more names and values.
func (s *snapshot) fill(text string, p program, more ...string) (string, error) {
	names := map[string]string{
		"Version": s.version, "Os": p.os, "Arch": p.arch, "Path": p.path,
		"CommitDate": s.commit.UTC().Format(time.RFC3339), "CommitTimestamp": fmt.Sprint(s.commit.Unix()),
	}
	for i := 0; i < len(more); i += 2 {
		names[more[i]] = more[i+1]
	}
	t, err := template.New("goreleaser.yaml").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var filled strings.Builder
	err = t.Execute(&filled, names)
	return filled.String(), err
}

// create makes one released file, which fill writes.
func (s *snapshot) create(name string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(filepath.Join(s.out, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.made = append(s.made, name)
	return nil
}

// of returns the programs of some builds.
func (s *snapshot) of(ids []string) []program {
	return slices.DeleteFunc(slices.Clone(s.programs), func(p program) bool { return !slices.Contains(ids, p.build) })
}

// hooks runs the commands that come before everything else.
func (s *snapshot) hooks(ctx context.Context) error {
	for _, hook := range s.Before.Hooks {
		if err := command(ctx, "", nil, strings.Fields(hook)...); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command. The error has its output.
func command(ctx context.Context, dir string, env []string, words ...string) error {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", words, err, bytes.TrimSpace(out))
	}
	return nil
}
