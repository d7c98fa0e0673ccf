package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// size is the size in bytes of the file that is sent to the hosts, and of the
// working directory.
const size = 100_000_000

// syncs returns the lines (rows of the result table) that send a file and a
// working directory to all hosts.
func syncs(ctx context.Context, b *bench) ([]line, error) {
	b.folder = filepath.Join(b.scratch, "folder")
	if err := errors.Join(fill(b.folder), b.launch(ctx, len(b.cluster.Hosts), "true")); err != nil {
		return nil, err
	}
	return append(b.copies(), b.workdirs()...), nil
}

// launched returns the way that runs plx launch with the given flags on all
// hosts.
func (b *bench) launched(flags ...string) way {
	name := strings.Join(append([]string{"plx launch"}, flags...), " ")
	return way{name: name, run: func(ctx context.Context) error { return b.launch(ctx, len(b.cluster.Hosts), append(flags, "true")...) }}
}

// copied returns the way that runs a copying program for each host in
// parallel. The program gets HOST:into as its last argument.
func (b *bench) copied(name, into string, args ...string) way {
	return way{name: name, run: func(ctx context.Context) error {
		return b.each(ctx, func(ctx context.Context, h *testhosts.Host) error {
			cmd := command(ctx, name, append(slices.Clone(args), h.Name+":"+into)...)
			cmd.Dir, cmd.Env = b.folder, append(os.Environ(), "SSH_AUTH_SOCK=")
			return said(cmd)
		})
	}}
}

// rsh is the ssh command that rsync uses to connect to the hosts.
func (b *bench) rsh() string { return strings.Join(append([]string{"ssh"}, b.ssh()...), " ") }

// copies returns the lines that send an incompressible file.
func (b *bench) copies() []line {
	file, content, write := b.file()
	plain, plx, scp, rsync := b.launched(), b.copying(file), b.scp(file), b.copied("rsync", "file", "-a", "-e", b.rsh(), file)
	return []line{
		{name: "100 MB file to 8 hosts, new", goal: 1, plx: plx, beyond: plain, peer: scp,
			before: func(context.Context, int) error { return errors.Join(write(), b.forget()) }},
		{name: "100 MB file to 8 hosts, 1 % changed", goal: 1, plx: plx, beyond: plain, peer: rsync, has: both(plx, rsync),
			before: func(_ context.Context, round int) error {
				from := round % 90 * (size / 100)
				rand.Read(content[from : from+size/100]) // rand.Read never returns an error
				return write()
			}},
		{name: "100 MB file to 8 hosts, unchanged", goal: 0.1, over: true, plx: plx, peer: plain,
			before: func(ctx context.Context, _ int) error { return plx.run(ctx) }},
	}
}

// both returns a setup that runs the two ways a and b. After the setup, the
// hosts have the files that each way sends, which the method forget had
// renamed.
func both(a, b way) func(context.Context) error {
	return func(ctx context.Context) error { return errors.Join(a.run(ctx), b.run(ctx)) }
}

// file returns the path of an incompressible file, its content, and a function
// that writes the file.
func (b *bench) file() (file string, content []byte, write func() error) {
	file, content = filepath.Join(b.scratch, "file"), make([]byte, size)
	rand.Read(content) // rand.Read never returns an error
	return file, content, func() error { return os.WriteFile(file, content, 0o644) }
}

// copying returns the way that sends a file by plx launch --copy.
func (b *bench) copying(file string) way {
	plx := b.launched("--copy", file)
	plx.name = "plx launch --copy"
	return plx
}

func (b *bench) scp(file string) way { return b.copied("scp", "file", append(b.ssh(), file)...) }

// uplink is the rate limit of the launching machine's link in the part spread.
const uplink = "100mbit"

// spreads returns the line (row of the result table) that sends a file to 32
// hosts over a slow uplink. The line compares this with sending the file to a
// single host.
func spreads(ctx context.Context, b *bench) ([]line, error) {
	b.folder = b.scratch
	file, _, write := b.file()
	if err := b.launch(ctx, len(b.cluster.Hosts), "true"); err != nil {
		return nil, err
	}
	b.cluster.Shape(uplink)
	once := way{name: "scp to one host", run: func(ctx context.Context) error {
		cmd := command(ctx, "scp", append(b.ssh(), file, b.cluster.Hosts[0].Name+":file")...)
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
		return said(cmd)
	}}
	return []line{{
		name: "100 MB file to 32 hosts, uplink 100 Mbit/s, their links 1 Gbit/s", goal: 1.3,
		plx: b.copying(file), beyond: b.launched(), peer: once,
		before: func(context.Context, int) error { return errors.Join(write(), b.forget()) },
	}}, nil
}

// workdirs returns the lines that send a working directory.
func (b *bench) workdirs() []line {
	plain, plx := b.launched(), b.launched("--workdir", ".")
	rsync := b.copied("rsync", "work/", "-a", "--delete", "-e", b.rsh(), "./")
	rsync.name = "rsync -a"
	// after returns a setup that sends the folder by a launch. If changed is
	// true, the setup then changes a file.
	after := func(changed bool) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			err := b.launch(ctx, len(b.cluster.Hosts), "--workdir", ".", "true")
			if changed {
				err = errors.Join(err, b.change())
			}
			return err
		}
	}
	return []line{
		{name: "--workdir, 5,000 files, 100 MB, 8 hosts, first", goal: 1, plx: plx, beyond: plain, peer: rsync,
			before: func(context.Context, int) error { return b.forget() }},
		{name: "--workdir, 5,000 files, 100 MB, 8 hosts, one file changed", goal: 1, plx: plx, beyond: plain, peer: rsync, has: both(plx, rsync), before: after(true)},
		{name: "--workdir, 5,000 files, 100 MB, 8 hosts, unchanged", goal: 0.3, over: true, plx: plx, peer: plain, before: after(false)},
	}
}

// change changes one file of the working directory.
func (b *bench) change() error {
	b.changes++
	return os.WriteFile(filepath.Join(b.folder, "package1", "part1", "file1.py"), fmt.Appendf(nil, "print(%d)\n", b.changes), 0o644)
}

// forget makes plx treat the hosts as if it had sent nothing: it renames the
// files on the hosts, and removes plx's cache of hashes. It does not remove
// the files on the hosts, because that would slow down the next measurement.
// For at least a minute, ext4 does not reuse a removed inode, and every search
// for a free inode checks each of them.
func (b *bench) forget() error {
	errs := []error{os.RemoveAll(filepath.Join(b.cluster.Home, ".plx", "hashes"))}
	for _, h := range b.cluster.Hosts {
		for _, name := range []string{"file", "work", ".plx/files"} {
			b.aside++
			err := os.Rename(filepath.Join(h.HomeDir, name), filepath.Join(h.HomeDir, fmt.Sprint("aside", b.aside)))
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// fill creates a folder that resembles a software project. A third of the
// bytes is incompressible data, the other bytes are text.
func fill(folder string) error {
	const files = 5000
	r := mathrand.New(mathrand.NewPCG(1, 1))
	words := []string{"import ", "torch", "self.", "return ", "def ", "\n    ", "(x)", "model", " = ", "loss", "0.1", "[i]", "# ", "for "}
	for i := range files {
		dir := filepath.Join(folder, fmt.Sprintf("package%d", i%50), fmt.Sprintf("part%d", i%7))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		// The sizes are between 0.1 and 1.9 times the mean.
		length := int(size / files * (0.1 + 1.8*r.Float64()))
		content := make([]byte, 0, length)
		for len(content) < length {
			if i%3 == 0 {
				content = append(content, byte(r.Uint32()))
			} else {
				content = append(content, words[r.IntN(len(words))]...)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d.py", i)), content[:length], 0o644); err != nil {
			return err
		}
	}
	return nil
}
