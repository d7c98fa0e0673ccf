package testhosts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/internal/test/executable"
)

// disk is the part of a host that survives a power off: a directory of the
// test's machine. Each boot bind-mounts the files of this directory into the
// host.
type disk struct {
	name    string // name of the host, such as h1
	number  int    // number of the host, from 1
	dir     string // directory on the test's machine with all files of the host
	home    string // directory on the test's machine that is root's home on the host
	options Options

	container bool // if true, the next boot keeps the boot ID, as a restarted container does
}

func newDisk(n *network, number int, o Options) *disk {
	name := fmt.Sprintf("h%d", number)
	d := &disk{name: name, number: number, dir: filepath.Join(n.dir, name), options: o}
	d.home = d.path("home")
	if o.SharedHome {
		d.home = filepath.Join(n.dir, "home")
	}
	return d
}

// sshPort is the port of every sshd.
const sshPort = 22

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

// prepare writes all files that a boot bind-mounts into the host. hosts is the
// content of /etc/hosts. authorized is the line of authorized_keys with the
// client's public key.
func (d *disk) prepare(hosts, authorized string) error {
	for _, folder := range []string{"ssh", "bin", "gpus"} {
		if err := os.MkdirAll(d.path(folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(d.home, 0o700); err != nil {
		return err
	}
	if d.options.SharedHome {
		if err := os.Symlink(d.home, d.path("home")); err != nil {
			return err
		}
	}
	for name, text := range d.files(hosts, authorized) {
		if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := d.writeHostKeys(); err != nil {
		return err
	}
	if d.options.NoisyRC {
		if err := os.WriteFile(filepath.Join(d.home, ".bashrc"), []byte(noisyRC), 0o644); err != nil {
			return err
		}
	}
	if gpus := d.options.GPUs; d.number <= len(gpus) {
		return d.setGPUs(gpus[d.number-1])
	}
	return nil
}

// noisyRC is a .bashrc that prints what some users' .bashrc prints: greetings
// on both output streams, colors, and a line without a line feed.
const noisyRC = `echo "Welcome to $(hostname)!"
printf '\033[1;32mall systems green\033[0m\n'
echo "module load: warning: no such module" >&2
printf 'no newline here'
printf 'nor here' >&2
`

func (d *disk) files(hosts, authorized string) map[string]string {
	return map[string]string{
		"nothing":             "",
		"hostname":            d.name + "\n",
		"hosts":               hosts,
		"machine-id":          strings.ReplaceAll(newUUID(), "-", "") + "\n",
		"ssh/sshd_config":     d.sshdConfig(),
		"ssh/authorized_keys": authorized,
	}
}

// newBootID writes a new boot ID for the host, because the hosts share a
// kernel, whose own boot ID is equal on all of them. If d.container is set,
// the host keeps its boot ID.
func (d *disk) newBootID() error {
	if d.container {
		return nil
	}
	return os.WriteFile(d.path("boot_id"), []byte(newUUID()+"\n"), 0o444)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, according to its documentation
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// setTool installs a program in the host's /usr/local/bin, for the current
// boot and all later ones. An empty script removes the program.
func (d *disk) setTool(name, script string) error {
	path := filepath.Join(d.path("bin"), name)
	if script == "" {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	return replaceFile(path, script, 0o755)
}

// replaceFile replaces a file atomically: a reader never sees an incomplete
// file, and executing the file never fails with "text file busy".
func replaceFile(path, text string, mode os.FileMode) error {
	temporary := path + ".new"
	if err := executable.Write(temporary, []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
