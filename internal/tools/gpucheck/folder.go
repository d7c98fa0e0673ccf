package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// folder is what make gpu-check has built: this program, and others packed as
// NAME.gz.
type folder struct {
	path  string
	own   string // this program
	temp  string // for unpacked programs and what they write
	quick bool
}

// openFolder opens the folder of this program.
func openFolder(own string, quick bool) (*folder, error) {
	path := filepath.Dir(own)
	temp, err := os.MkdirTemp(path, "unpacked-")
	if err != nil { // the folder may be on a medium that is only read
		temp, err = os.MkdirTemp("", "gpu-check-")
	}
	if err != nil {
		return nil, err
	}
	return &folder{path: path, own: own, temp: temp, quick: quick}, nil
}

func (f *folder) close() error { return os.RemoveAll(f.temp) }

// largestProgram bounds what one packed program may become.
const largestProgram = 200 << 20

// errAbsent says that this machine or the folder lacks what a part needs.
var errAbsent = errors.New("not checked")

// program unpacks a program and returns its path.
func (f *folder) program(name string) (path string, err error) {
	path = filepath.Join(f.temp, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	packed, err := os.Open(filepath.Join(f.path, name+".gz"))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("the folder was built without %s: %w", name, errAbsent)
	} else if err != nil {
		return "", err
	}
	defer packed.Close() // it was only read
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", packed.Name(), err)
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	n, err := io.Copy(to, io.LimitReader(plain, largestProgram))
	if err == nil && n == largestProgram {
		err = fmt.Errorf("it is larger than %d bytes", n)
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return "", fmt.Errorf("unpack %s: %w", packed.Name(), err)
	}
	return path, nil
}

// ended is how a process ended.
type ended struct {
	out string // its standard output
	all string // the end of both outputs
	err error  // nil: status 0
}

// exec runs a process with what it starts, until ctx ends.
func (f *folder) exec(ctx context.Context, stdin io.Reader, path string, args ...string) ended {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = stdin
	return f.execute(ctx, cmd)
}

func (f *folder) execute(ctx context.Context, cmd *exec.Cmd) ended {
	cmd.Dir, cmd.Env = f.temp, append(append(environment(), "PLX_EXAMPLES="+filepath.Join(f.temp, "examples")), cmd.Env...)
	out, all := &tail{most: 1 << 20}, &tail{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, all), all
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // a process that the kernel holds
	begin := time.Now()
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it did not end within %v", time.Since(begin).Round(time.Second))
	}
	return ended{out.String(), all.String(), err}
}

// environment is that of this process, with one GPU.
func environment() []string {
	return append(os.Environ(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES="+visible(), "PLX_TEST_GPU=1")
}

// visible is the GPU that is used.
func visible() string {
	gpu, _, _ := strings.Cut(os.Getenv("CUDA_VISIBLE_DEVICES"), ",")
	return cmp.Or(gpu, "0")
}

// tail keeps the end of what is written to it.
type tail struct {
	most int
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - t.most; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.text) }
