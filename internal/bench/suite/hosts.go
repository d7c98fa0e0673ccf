package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/internal/testhosts"
)

// bench is what all lines of a part share.
type bench struct {
	plx     string // the program
	scratch string // a folder for files
	cluster *testhosts.Cluster
	aside   int // number of files and folders that were moved aside
}

// in returns the path of a file of the client's .ssh.
func (b *bench) in(name string) string { return filepath.Join(b.cluster.Home, ".ssh", name) }

// ssh are the options with which ssh and scp know the hosts.
func (b *bench) ssh() []string {
	return []string{"-F", b.in("config"), "-i", b.in("id_ed25519"), "-o", "UserKnownHostsFile=" + b.in("known_hosts"), "-o", "BatchMode=yes"}
}

// said runs a command, whose output is part of its error.
func said(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

// launch runs a program on the first hosts. Its output goes to a file that is not kept.
func (b *bench) launch(ctx context.Context, hosts int, args ...string) error {
	file := filepath.Join(b.scratch, "hosts.txt")
	var lines []byte
	for _, h := range b.cluster.Hosts[:hosts] {
		lines = fmt.Appendln(lines, h.Name+": cpu")
	}
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		return err
	}
	cmd := command(ctx, b.plx, append([]string{"launch", "--hosts", file}, args...)...)
	cmd.Dir = b.scratch
	cmd.Env = append(os.Environ(), "HOME="+b.cluster.Home, "SSH_AUTH_SOCK=")
	return b.written(cmd)
}

// written runs a command whose standard output goes to a file.
func (b *bench) written(cmd *exec.Cmd) error {
	out, err := os.CreateTemp(b.scratch, "out-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // the folder is removed at the end
	defer out.Close()           // what it holds does not matter
	var complaint strings.Builder
	cmd.Stdout, cmd.Stderr = out, &complaint
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, &complaint)
	}
	return nil
}

// launches are commands on all hosts that do nothing.
func launches(ctx context.Context, b *bench) (all []line, err error) {
	for _, hosts := range []int{1, 8, 32} {
		var names []string
		for _, h := range b.cluster.Hosts[:hosts] {
			names = append(names, h.Name)
		}
		all = append(all, line{
			name: fmt.Sprintf("hostname on %d hosts, second time", hosts), goal: 1,
			plx: way{"plx launch", func(ctx context.Context) error { return b.launch(ctx, hosts, "hostname") }},
			peer: way{"pdsh", func(ctx context.Context) error {
				cmd := command(ctx, "pdsh", "-R", "ssh", "-f", "64", "-w", strings.Join(names, ","), "hostname")
				cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=", "PDSH_SSH_ARGS_APPEND="+strings.Join(b.ssh(), " "))
				return b.written(cmd)
			}},
		})
	}
	return all, b.launch(ctx, 32, "hostname")
}

// logLines is the number of lines that each task of the logs prints.
const logLines = 1_000_000

// logs are tasks that print lines as fast as they can.
func logs(ctx context.Context, b *bench) ([]line, error) {
	for i, h := range b.cluster.Hosts {
		var text []byte
		for k := range logLines {
			text = fmt.Appendf(text, "step %d of worker %d: loss %.6f\n", k, i, 1/float64(k+1))
		}
		if err := os.WriteFile(filepath.Join(h.HomeDir, "lines"), text, 0o644); err != nil {
			return nil, err
		}
	}
	hosts := len(b.cluster.Hosts)
	print := []string{"--ps", "none", "sh", "-c", "exec cat ~/lines"}
	return []line{{
		name: "8 tasks, 1 million lines each", goal: 1,
		plx: way{"plx launch", func(ctx context.Context) error { return b.launch(ctx, hosts, print...) }},
		peer: way{"ssh", func(ctx context.Context) error {
			return b.each(ctx, func(ctx context.Context, h *testhosts.Host) error {
				return b.written(command(ctx, "ssh", append(b.ssh(), h.Name, "exec cat ~/lines")...))
			})
		}},
	}}, b.launch(ctx, hosts, "true")
}

// each calls do for all hosts at once.
func (b *bench) each(ctx context.Context, do func(context.Context, *testhosts.Host) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range b.cluster.Hosts {
		group.Go(func() error { return do(ctx, h) })
	}
	return group.Wait()
}

// copySize is the size of the file that is sent, in bytes.
const copySize = 100_000_000

// copies send a file that cannot be compressed to all hosts.
func copies(ctx context.Context, b *bench) ([]line, error) {
	file := filepath.Join(b.scratch, "file")
	content := make([]byte, copySize)
	rand.Read(content) // never fails
	hosts := len(b.cluster.Hosts)
	write := func() error { return os.WriteFile(file, content, 0o644) }
	plain := way{"plx launch", func(ctx context.Context) error { return b.launch(ctx, hosts, "true") }}
	plx := way{"plx launch --copy", func(ctx context.Context) error { return b.launch(ctx, hosts, "--copy", file, "true") }}
	send := func(name string, args ...string) way {
		return way{name, func(ctx context.Context) error {
			return b.each(ctx, func(ctx context.Context, h *testhosts.Host) error {
				return said(command(ctx, name, slices.Concat(args, []string{file, h.Name + ":file"})...))
			})
		}}
	}
	scp := send("scp", b.ssh()...)
	rsync := send("rsync", "-a", "-e", strings.Join(append([]string{"ssh"}, b.ssh()...), " "))
	all := []line{
		{name: "100 MB to 8 hosts, new", goal: 1, plx: plx, beyond: plain, peer: scp,
			before: func(context.Context, int) error { return b.forget() }},
		{name: "100 MB to 8 hosts, 1 % changed", goal: 1, plx: plx, beyond: plain, peer: rsync,
			before: func(_ context.Context, round int) error {
				from := round % 90 * (copySize / 100)
				rand.Read(content[from : from+copySize/100]) // never fails
				return write()
			}},
	}
	return all, errors.Join(write(), plain.run(ctx))
}

// forget moves what hosts have of the file aside. To remove it would slow down what is
// measured next.
func (b *bench) forget() error {
	var errs []error
	for _, h := range b.cluster.Hosts {
		files, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx", "*", "*"))
		errs = append(errs, err)
		for _, name := range append(files, filepath.Join(h.HomeDir, "file")) {
			if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.Size() > copySize/2 {
				b.aside++
				errs = append(errs, os.Rename(name, filepath.Join(h.HomeDir, fmt.Sprint("aside", b.aside))))
			}
		}
	}
	return errors.Join(errs...)
}
