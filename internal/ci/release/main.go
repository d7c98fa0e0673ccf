// Release makes a snapshot of the release: what goreleaser makes of goreleaser.yaml,
// without its thousand modules.
//
//	go -C internal/ci/release run . -out DIR
//	go -C internal/ci/release run . -out DIR -targets linux/amd64
//
// It reads goreleaser.yaml, which alone says what a release holds. Packages are made
// by nfpm, as goreleaser makes them. It refuses a key of goreleaser.yaml that it does
// not know, and a pattern that matches no file. It publishes and signs nothing.
//
// This folder is a module of its own, so that plx does not depend on what packages are
// made with.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	root := flag.String("root", "../../..", "the repository's `folder`")
	out := flag.String("out", "dist", "write the release into this new `folder` of the repository")
	targets := flag.String("targets", "", "make only what is for these `platforms`, such as linux/amd64,darwin/arm64; empty for all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *root, *out, *targets); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, out, targets string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	c, err := read("goreleaser.yaml")
	if err != nil {
		return err
	}
	s, err := newSnapshot(ctx, c, out)
	if err != nil {
		return err
	}
	if targets != "" {
		s.targets = strings.Split(targets, ",")
	}
	for _, step := range []func(context.Context) error{s.hooks, s.build, s.archive, s.packages, s.sboms, s.checksums} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
