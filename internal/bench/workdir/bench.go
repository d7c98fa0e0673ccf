package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/internal/testhosts"
)

// bench is the hosts and the folder that is sent to them.
type bench struct {
	settings
	cluster *testhosts.Cluster
	hosts   []*testhosts.Host // those that are sent to
	folder  string            // the folder that is sent
	aside   int               // number of folders that were moved aside
}

// command returns a command that is ended with ctx, in a folder.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	return cmd
}

// counts measures every number of hosts.
func (b *bench) counts(ctx context.Context) (all []Count, err error) {
	if b.folder, err = os.MkdirTemp("", "plx-bench-folder-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.folder) // the system clears its temporary folder
	if err := b.fill(); err != nil {
		return nil, err
	}
	b.hosts = b.cluster.Hosts
	if err := b.plain(ctx); err != nil { // the agent is sent once, and not measured
		return nil, err
	}
	time.Sleep(4 * time.Second) // plx keeps no hash of a file that has just changed
	for _, n := range b.settings.hosts {
		b.hosts = b.cluster.Hosts[:n]
		rounds, err := b.rounds(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, Count{Hosts: n, Rounds: rounds})
	}
	return all, nil
}

// rounds measures all cases in every round, and in every case the three ways in
// another order than in the round before.
func (b *bench) rounds(ctx context.Context) (all []Round, err error) {
	for i := range b.settings.rounds {
		var r Round
		for k, into := range []*Times{&r.First, &r.Changed, &r.Same, &r.ChangedSpare, &r.SameSpare} {
			if err := b.prepare(ctx, k, i); err != nil {
				return nil, err
			}
			if *into, err = b.measure(ctx, i+k); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(os.Stderr, "%d hosts, round %d of %d: %+v\n", len(b.hosts), i+1, b.settings.rounds, r)
		all = append(all, r)
	}
	return all, nil
}

// fill makes a folder like that of a project: a third of the bytes is data that cannot
// be compressed, the rest is text.
func (b *bench) fill() error {
	r := rand.New(rand.NewPCG(1, 1))
	words := []string{"import ", "torch", "self.", "return ", "def ", "\n    ", "(x)", "model", " = ", "loss", "0.1", "[i]", "# ", "for "}
	for i := range b.files {
		dir := filepath.Join(b.folder, fmt.Sprintf("package%d", i%50), fmt.Sprintf("part%d", i%7))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		// Sizes between 0.1 and 1.9 of the mean.
		size := int(float64(b.size) / float64(b.files) * (0.1 + 1.8*r.Float64()))
		content := make([]byte, 0, size)
		for len(content) < size {
			if i%3 == 0 {
				content = append(content, byte(r.Uint32()))
			} else {
				content = append(content, words[r.IntN(len(words))]...)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d.py", i)), content[:size], 0o644); err != nil {
			return err
		}
	}
	for _, left := range []string{".git/objects/pack", ".venv/pyvenv.cfg", "package0/__pycache__/x.pyc", "run.log"} {
		file := filepath.Join(b.folder, left)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, 1e6), 0o644)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(b.folder, ".gitignore"), []byte("*.log\n"), 0o644)
}

// prepare brings hosts and folder into the state before a case, by the index of its Times
// in a Round.
func (b *bench) prepare(ctx context.Context, which, round int) error {
	var errs []error
	if which >= 3 {
		errs = append(errs, b.launch(ctx, []string{"--workdir", "."}, "sh", "-c", "until [ -d ~/.plx/spares/*/ready ]; do sleep 0.1; done"))
	}
	if which == 0 {
		errs = append(errs, os.RemoveAll(filepath.Join(b.cluster.Home, ".plx", "hashes")))
		for _, h := range b.hosts {
			errs = append(errs, b.clear(h, "work"), b.clear(h, ".plx/files"), b.clear(h, ".plx/spares"))
		}
	}
	if which == 1 || which == 3 {
		file := filepath.Join(b.folder, "package1", "part1", "file1.py")
		errs = append(errs, os.WriteFile(file, fmt.Appendf(nil, "print(%d, %d)\n", round, which), 0o644))
	}
	return errors.Join(errs...)
}

// clear moves a folder of a host aside. To remove it would slow down what is measured:
// ext4 does not use an inode again for a minute or more after its removal, and a search for
// free inodes looks at each of those.
func (b *bench) clear(h *testhosts.Host, name string) error {
	b.aside++
	err := os.Rename(filepath.Join(h.HomeDir, name), filepath.Join(h.HomeDir, fmt.Sprint("aside", b.aside)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// measure times the three ways, in an order that turn chooses.
func (b *bench) measure(ctx context.Context, turn int) (t Times, err error) {
	ways := []struct {
		run  func(context.Context) error
		into *float64
	}{{b.rsync, &t.Rsync}, {b.plain, &t.Plain}, {b.workdir, &t.Workdir}}
	for i := range ways {
		way := ways[(i+turn)%len(ways)]
		syscall.Sync() // nobody pays for what the others wrote
		begun := time.Now()
		if err := way.run(ctx); err != nil {
			return t, err
		}
		*way.into = time.Since(begun).Seconds()
	}
	return t, nil
}

// rsync brings the folder to all hosts at once.
func (b *bench) rsync(ctx context.Context) error {
	in := func(name string) string { return filepath.Join(b.cluster.Home, ".ssh", name) }
	ssh := fmt.Sprintf("ssh -F %s -i %s -o UserKnownHostsFile=%s -o BatchMode=yes", in("config"), in("id_ed25519"), in("known_hosts"))
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range b.hosts {
		group.Go(func() error {
			cmd := command(ctx, b.folder, "rsync", "-a", "--delete", "--exclude=.git", "--exclude=__pycache__", "--exclude=.venv", "--exclude=*.log",
				"-e", ssh, "./", h.Name+":work/")
			cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("rsync to %s: %w: %s", h.Name, err, out)
			}
			return nil
		})
	}
	return group.Wait()
}

func (b *bench) plain(ctx context.Context) error { return b.launch(ctx, nil, "true") }

func (b *bench) workdir(ctx context.Context) error {
	return b.launch(ctx, []string{"--workdir", "."}, "true")
}

// launch runs a program on all hosts.
func (b *bench) launch(ctx context.Context, flags []string, program ...string) error {
	hosts := filepath.Join(b.cluster.Home, "hosts.txt")
	var lines []byte
	for _, h := range b.hosts {
		lines = fmt.Appendln(lines, h.Name)
	}
	if err := os.WriteFile(hosts, lines, 0o600); err != nil {
		return err
	}
	cmd := command(ctx, b.folder, b.plx, slices.Concat([]string{"launch", "--hosts", hosts}, flags, program)...)
	cmd.Env = append(os.Environ(), "HOME="+b.cluster.Home, "SSH_AUTH_SOCK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("plx launch %q: %w: %s", flags, err, out)
	}
	return nil
}
