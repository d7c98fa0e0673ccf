package testhosts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// HomeMount is a state of a host's home.
type HomeMount int

// A NormalHome can be written. A ReadOnlyHome cannot. A FullHome is an empty
// file system of its own with room for 64 KiB.
const (
	NormalHome HomeMount = iota
	ReadOnlyHome
	FullHome
)

// MountHome changes how the host's home is mounted, for the programs that run
// already too. HomeDir always shows the normal one.
func (h *Host) MountHome(m HomeMount) {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cluster.check("mount the home of "+h.Name, h.mountHome(m))
}

func (h *Host) mountHome(m HomeMount) error {
	if m == h.mount {
		return nil
	}
	home := h.cluster.root
	var err error
	switch h.mount {
	case ReadOnlyHome:
		err = h.inMounts("mount", "-o", "remount,bind,rw", home)
	case FullHome:
		err = h.inMounts("umount", "--lazy", home)
	}
	if err != nil {
		return err
	}
	h.mount = NormalHome
	switch m {
	case ReadOnlyHome:
		err = h.inMounts("mount", "-o", "remount,bind,ro", home)
	case FullHome:
		err = h.inMounts("mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", home)
	}
	if err == nil {
		h.mount = m
	}
	return err
}

// inMounts runs a program of the machine in the host's mount namespace.
func (h *Host) inMounts(args ...string) error {
	pid, err := h.pid()
	if err != nil {
		return err
	}
	return tool("", "nsenter", append([]string{"--mount", "--pid", "--target", strconv.Itoa(pid), "--"}, args...)...)
}

// SetTool puts a program into the host's /usr/local/bin, at once and for good:
// a fake nvidia-smi that is broken or hangs, say. An empty script removes it.
func (h *Host) SetTool(name, script string) {
	h.cluster.report.Helper()
	h.cluster.check("set a tool of "+h.Name, h.setTool(name, script))
}

func (h *Host) setTool(name, script string) error {
	path := filepath.Join(h.path("bin"), name)
	if script == "" {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	return replaceFile(path, script, 0o755)
}

// replaceFile never shows a reader half of a file, nor a file that is being
// written to one who executes it.
func replaceFile(path, text string, mode os.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// prepare writes all that the host's boot binds into place.
func (h *Host) prepare() error {
	for _, folder := range []string{"ssh", "bin", "gpus"} {
		if err := os.MkdirAll(h.path(folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(h.HomeDir, 0o700); err != nil {
		return err
	}
	if h.cluster.options.SharedHome {
		if err := os.Symlink(h.HomeDir, h.path("home")); err != nil {
			return err
		}
	}
	for name, text := range h.files() {
		if err := os.WriteFile(h.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := h.writeHostKeys(); err != nil {
		return err
	}
	if h.cluster.options.NoisyRC {
		if err := os.WriteFile(filepath.Join(h.HomeDir, ".bashrc"), []byte(noisyRC), 0o644); err != nil {
			return err
		}
	}
	if gpus := h.cluster.options.GPUs; h.number <= len(gpus) {
		return h.setGPUs(gpus[h.number-1])
	}
	return nil
}

// noisyRC prints what people's rc files print: greetings on both streams,
// colours, and a line that does not end.
const noisyRC = `echo "Welcome to $(hostname)!"
printf '\033[1;32mall systems green\033[0m\n'
echo "module load: warning: no such module" >&2
printf 'no newline here'
printf 'nor here' >&2
`

func (h *Host) files() map[string]string {
	return map[string]string{
		"nothing":             "",
		"hostname":            h.Name + "\n",
		"hosts":               h.cluster.etcHosts(),
		"machine-id":          strings.ReplaceAll(newUUID(), "-", "") + "\n",
		"ssh/sshd_config":     h.sshdConfig(),
		"ssh/authorized_keys": h.cluster.key,
	}
}

// newBootID gives this boot an id of its own; the kernel's is the machine's.
func (h *Host) newBootID() error {
	return os.WriteFile(h.path("boot_id"), []byte(newUUID()+"\n"), 0o444)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (c *Cluster) etcHosts() string {
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for i := range c.options.Hosts {
		fmt.Fprintf(&text, "%s h%d\n", c.net.address(i+1), i+1)
	}
	return text.String()
}

// rootHome follows the password file, as sshd does, and not HOME.
func rootHome() (string, error) {
	root, err := user.LookupId("0")
	if err != nil {
		return "", fmt.Errorf("testhosts: find root's home: %w", err)
	}
	return root.HomeDir, nil
}
