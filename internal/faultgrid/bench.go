package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/plx-run/plx/internal/measured"
	"github.com/plx-run/plx/internal/testhosts"
)

// bench is the hosts and the programs of a grid.
type bench struct {
	*settings
	results   *Results
	cluster   *testhosts.Cluster
	file      string // of resources
	fewFile   string // the first two hosts, each with a worker
	looseFile string // likewise, where workers do not wait for each other
	dir       string
	digest    string // of the weights without a fault
	started   []*job // that may still run
	stderr    io.Writer
}

// reporter passes on what the hosts say.
type reporter struct{ io.Writer }

func (reporter) Helper() {}

func (r reporter) Errorf(format string, args ...any) { r.Logf(format, args...) }

func (r reporter) Logf(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// openBench builds the programs and starts the hosts. The caller closes it.
func openBench(s *settings, r *Results, stderr io.Writer) (b *bench, err error) {
	b = &bench{settings: s, results: r, stderr: stderr}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "plx-faultgrid-"); err != nil {
		return b, err
	}
	if err := b.build(); err != nil {
		return b, err
	}
	if b.cluster, err = testhosts.Open(testhosts.Options{Hosts: len(resources)}, reporter{stderr}); err != nil {
		return b, err
	}
	b.file, b.looseFile, b.fewFile = b.cluster.ResourceFile(resources...), b.cluster.ResourceFile(looseResources...), b.cluster.ResourceFile(looseResources[:2]...)
	return b, nil
}

// build makes the programs that are not given.
func (b *bench) build() error {
	for _, p := range []struct {
		to        *string
		name, pkg string
	}{{&b.plx, "plx", "."}, {&b.trainee, "trainee", "./internal/faultgrid/trainee"}} {
		if *p.to != "" {
			continue
		}
		*p.to = filepath.Join(b.dir, p.name)
		cmd := exec.Command("go", "build", "-trimpath", "-o", *p.to, p.pkg)
		cmd.Dir, cmd.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", p.pkg, err, out)
		}
	}
	if b.logs != "" {
		return os.MkdirAll(b.logs, 0o755)
	}
	return nil
}

// all trains without a fault, then tries the cells one after the other. The
// samples are kept after each.
func (b *bench) all(ctx context.Context) error {
	for i, arch := range architectures {
		if b.quick && i > 0 {
			break // all have the same bits, and the cells say it if not
		}
		ref, err := b.reference(ctx, arch)
		if err != nil {
			return fmt.Errorf("%s without a fault: %w", arch, err)
		}
		fmt.Fprintf(b.stderr, "%s without a fault: %.1f s\n", arch, ref.Seconds)
		if b.digest == "" {
			b.digest = ref.Digest
		}
		if ref.Digest != b.digest {
			return fmt.Errorf("%s has other weights than %s without a fault", arch, b.results.References[0].Arch)
		}
		b.results.References = append(b.results.References, ref)
	}
	cells := b.chosen()
	for i, c := range cells {
		s := b.try(ctx, c)
		if err := ctx.Err(); err != nil {
			return err
		}
		b.results.keep(s)
		fmt.Fprintf(b.stderr, "%d of %d: %s\n", i+1, len(cells), s.summary())
		if err := measured.Save(b.samples(), b.results); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) close() error {
	for _, j := range b.started {
		j.stop()
	}
	var err error
	if b.cluster != nil {
		err = b.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}
