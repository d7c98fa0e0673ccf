package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// bench is what all lines of a part share.
type bench struct {
	plx     string // the program
	scratch string // a folder for files
	cluster *testhosts.Cluster
	folder  string // the working directory that is sent
	aside   int    // number of files and folders that were moved aside
	changes int    // number of times that a file of the folder was changed
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
	if b.folder != "" {
		cmd.Dir = b.folder
	}
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
			plx: way{name: "plx launch", run: func(ctx context.Context) error { return b.launch(ctx, hosts, "hostname") }},
			peer: way{name: "pdsh", run: func(ctx context.Context) error {
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
		plx: way{name: "plx launch", run: func(ctx context.Context) error { return b.launch(ctx, hosts, print...) }},
		peer: way{name: "ssh", run: func(ctx context.Context) error {
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
