package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// build builds the programs for all platforms that are made.
func (s *snapshot) build(ctx context.Context) error {
	for _, b := range s.Builds {
		for _, system := range b.GoOS {
			for _, arch := range b.GoArch {
				p := program{build: b.ID, os: system, arch: arch}
				if len(s.targets) > 0 && !slices.Contains(s.targets, p.target()) {
					continue
				}
				p.path = filepath.Join(s.out, "programs", b.ID+"_"+system+"_"+arch, b.Binary)
				if err := s.buildOne(ctx, b, p); err != nil {
					return fmt.Errorf("build %s for %s: %w", b.ID, p.target(), err)
				}
				s.programs = append(s.programs, p)
			}
		}
	}
	if len(s.programs) == 0 {
		return fmt.Errorf("no platform of goreleaser.yaml is among %v", s.targets)
	}
	return nil
}

func (s *snapshot) buildOne(ctx context.Context, b build, p program) error {
	linker, err := s.fill(strings.Join(b.LDFlags, " "), p)
	if err != nil {
		return err
	}
	words := slices.Concat([]string{"go", "build"}, b.Flags, []string{"-ldflags", linker, "-o", p.path, b.Main})
	if err := command(ctx, "", append(b.Env, "GOOS="+p.os, "GOARCH="+p.arch), words...); err != nil {
		return err
	}
	stamp, err := s.fill(b.ModTime, p)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return err
	}
	if err := os.Chtimes(p.path, time.Unix(seconds, 0), time.Unix(seconds, 0)); err != nil {
		return err
	}
	for _, hook := range b.Hooks.Post {
		filled, err := s.fill(hook, p)
		if err != nil {
			return err
		}
		if err := command(ctx, "", nil, strings.Fields(filled)...); err != nil {
			return err
		}
	}
	return nil
}
