//go:build linux

package e2e

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
)

// onTerminal runs plx on a new terminal and returns everything that plx wrote
// to it. It calls act with the output so far, until act returns true.
func onTerminal(b *bench, code int, act func(seen string, terminal io.Writer) bool, args ...string) string {
	b.t.Helper()
	master, slave := openTerminal(b.t)
	cmd := b.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	run := b.spawn(cmd, newWatched())
	slave.Close()
	var seen []byte
	for buf := make([]byte, 64<<10); ; {
		n, err := master.Read(buf)
		seen = append(seen, buf[:n]...)
		if act != nil && act(string(seen), master) {
			act = nil
		}
		if err != nil {
			break // read fails with EIO when no process has the terminal open any more
		}
	}
	if act != nil {
		cmd.Process.Kill() // it may have ended
		b.t.Fatalf("what was waited for never came:\n%q", clip(string(seen)))
	}
	run.stdout.Write(seen)
	run.want(code)
	return string(seen)
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = master.SetReadDeadline(time.Now().Add(patience.Limit))
	}
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 300}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// command returns a command that would run plx, without starting it.
func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.Command(b.plx, args...)
	cmd.Env = append(append(environ(), "HOME="+b.home), b.env...)
	cmd.Dir = b.t.TempDir()
	return cmd
}

// spawn starts a command of plx whose stdout and stderr the caller has set.
func (b *bench) spawn(cmd *exec.Cmd, stderr *watched) *running {
	b.t.Helper()
	r := &running{t: b.t, cmd: cmd, stdout: newWatched(), stderr: stderr, done: make(chan struct{}), args: cmd.Args[1:], limit: patience.Limit}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		cmd.Wait() // ignore the error: cmd contains the exit state
		close(r.done)
	}()
	b.t.Cleanup(func() {
		cmd.Process.Kill() // it may have ended
		<-r.done
	})
	return r
}

// rendered returns what a terminal would show after text. It interprets
// carriage returns, erasing of a line or of everything below, and cursor
// movements up and to the first column. No line may be wider than the
// terminal.
func rendered(text string) string {
	text = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\x1b\[\?[0-9;]*[a-z]`).ReplaceAllString(text, "") // modes
	sequence := regexp.MustCompile(`^\x1b\[([0-9]*);?([KAHJ])`)
	lines, y, x := [][]rune{nil}, 0, 0
	for len(text) > 0 {
		if m := sequence.FindStringSubmatch(text); m != nil {
			switch {
			case m[2] == "A":
				up, _ := strconv.Atoi(m[1]) // 0: one
				y = max(0, y-max(1, up))
			case m[2] == "H":
				row, _ := strconv.Atoi(m[1]) // 0: the first
				for x, y = 0, max(0, row-1); len(lines) <= y; {
					lines = append(lines, nil)
				}
			case m[2] == "J":
				lines = lines[:y+1]
			case m[1] == "2":
				lines[y] = nil
			default:
				lines[y] = lines[y][:min(x, len(lines[y]))]
			}
			text = text[len(m[0]):]
			continue
		}
		r := []rune(text[:min(4, len(text))])[0]
		text = text[len(string(r)):]
		switch r {
		case '\n':
			if y++; y == len(lines) {
				lines = append(lines, nil)
			}
		case '\r':
			x = 0
		default:
			for len(lines[y]) <= x {
				lines[y] = append(lines[y], ' ')
			}
			lines[y][x] = r
			x++
		}
	}
	var screen []string
	for _, line := range lines {
		screen = append(screen, strings.TrimRight(string(line), " "))
	}
	return strings.Join(screen, "\n")
}
