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

// bench is the state that all lines (rows of the result table) of one part of
// the suite share.
type bench struct {
	plx     string // path of the plx binary
	scratch string // folder for temporary files
	cluster *testhosts.Cluster
	folder  string // working directory that plx sends to the hosts; "" if the part sends none
	aside   int    // number of files and folders that the method forget has renamed
	changes int    // number of changes that the method change has made to the working directory
}

// in returns the path of a file in the client's .ssh folder.
func (b *bench) in(name string) string { return filepath.Join(b.cluster.Home, ".ssh", name) }

// ssh returns the options of ssh and scp for access to the test hosts.
func (b *bench) ssh() []string {
	return []string{"-F", b.in("config"), "-i", b.in("id_ed25519"), "-o", "UserKnownHostsFile=" + b.in("known_hosts"), "-o", "BatchMode=yes"}
}

// said runs a command. If it fails, the error contains its output.
func said(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

// launch runs plx launch on the first hosts of the cluster; hosts is their
// number. plx writes its output to a temporary file, which launch then
// removes.
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

// written runs a command whose standard output goes to a temporary file.
func (b *bench) written(cmd *exec.Cmd) error {
	out, err := os.CreateTemp(b.scratch, "out-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // if the removal fails, the folder is removed later
	defer out.Close()           // an error of Close does not matter, because the content is not used
	var complaint strings.Builder
	cmd.Stdout, cmd.Stderr = out, &complaint
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, &complaint)
	}
	return nil
}

// launches returns the lines (rows of the result table) that time trivial
// commands on all hosts.
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

// logLines is the number of lines that each task of the part logs prints.
const logLines = 1_000_000

// logs returns the line (row of the result table) that times tasks which print
// as fast as they can.
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

// each calls do for all hosts in parallel.
func (b *bench) each(ctx context.Context, do func(context.Context, *testhosts.Host) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range b.cluster.Hosts {
		group.Go(func() error { return do(ctx, h) })
	}
	return group.Wait()
}
