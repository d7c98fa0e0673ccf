package gpuprobe

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Here answers for this host what probe.sh does. It starts no program on a host without a GPU
// of NVIDIA. On others it runs the script.
func Here(ctx context.Context, o Options) (Answer, error) {
	if hasNVIDIA() {
		return ask(ctx, hereShell{}, "", o)
	}
	var u unix.Utsname
	_ = unix.Uname(&u) // fails only for a wrong address
	sections := []struct{ name, text string }{
		{"machine", unix.ByteSliceToString(u.Machine[:]) + " " + unix.ByteSliceToString(u.Release[:])},
		{"cpus", strconv.Itoa(runtime.NumCPU())},
		{"memory", lineOf("MemTotal", "/proc/meminfo")},
		{"cpu-model", lineOf("model name", "/proc/cpuinfo")},
		{"visible", os.Getenv("CUDA_VISIBLE_DEVICES")},
		{"blas", strings.Join(blasHere(), "\n")},
	}
	a := Answer{Mark: "plx-" + rand.Text()}
	for _, s := range sections {
		a.Text += fmt.Sprintf("\n%s begin %s\n%s\n", a.Mark, s.name, s.text)
	}
	return a, nil
}

// hereShell runs scripts on this host.
type hereShell struct{}

func (hereShell) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.WaitDelay = endGrace // a stuck nvidia-smi may hold the output open
	return cmd.Run()
}

// smiPlaces are where probe.sh looks for nvidia-smi besides PATH.
var smiPlaces = []string{"/usr/bin", "/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/opt/bin", "/run/nvidia/driver/usr/bin", "/usr/lib/wsl/lib", "/run/current-system/sw/bin"}

// hasNVIDIA reports whether anything shows a GPU of NVIDIA: its tool, its driver or its place
// on the bus.
func hasNVIDIA() bool {
	if _, err := exec.LookPath("nvidia-smi"); err == nil {
		return true
	}
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	if there("/proc/driver/nvidia") || slices.ContainsFunc(smiPlaces, func(dir string) bool { return there(dir + "/nvidia-smi") }) {
		return true
	}
	vendors, _ := filepath.Glob("/sys/bus/pci/devices/*/vendor") // the pattern is right
	return slices.ContainsFunc(vendors, func(path string) bool {
		vendor, _ := os.ReadFile(path) // what cannot be read is no GPU
		class, _ := os.ReadFile(filepath.Dir(path) + "/class")
		return bytes.HasPrefix(vendor, []byte("0x10de")) && bytes.HasPrefix(class, []byte("0x03"))
	})
}

// lineOf returns the file's first line that begins so.
func lineOf(prefix, path string) string {
	text, _ := os.ReadFile(path) // what cannot be read is not known
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSuffix(line, "\n")
		}
	}
	return ""
}

// blasFolders are where probe.sh looks besides the loader's cache.
const blasFolders = "/usr/lib/*-linux-*:/usr/lib64:/usr/local/lib:/opt/OpenBLAS/lib:/opt/intel/oneapi/mkl/latest/lib:/opt/intel/oneapi/mkl/latest/lib/intel64:/opt/intel/mkl/lib/intel64"

// blasHere returns "FILE PATH" for every library that plx could use: of the loader's cache,
// whose strings end with 0, and of the folders.
func blasHere() (found []string) {
	cache, _ := os.ReadFile("/etc/ld.so.cache") // some systems have none
	for text := range bytes.SplitSeq(cache, []byte{0}) {
		if path := string(text); len(path) > 0 && path[0] == '/' && isBLAS(filepath.Base(path)) {
			found = append(found, filepath.Base(path)+" "+path)
		}
	}
	folders := blasFolders
	if own := os.Getenv("LD_LIBRARY_PATH"); own != "" {
		folders = own + ":" + folders
	}
	if conda := os.Getenv("CONDA_PREFIX"); conda != "" {
		folders += ":" + conda + "/lib"
	}
	for folder := range strings.SplitSeq(folders, ":") {
		if folder == "" {
			continue
		}
		paths, _ := filepath.Glob(folder + "/lib[omb]*.so.*") // a folder's name may be a wrong pattern
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && isBLAS(filepath.Base(path)) {
				found = append(found, filepath.Base(path)+" "+path)
			}
		}
	}
	return found
}

func isBLAS(file string) bool {
	name, _, shared := strings.Cut(file, ".so")
	return shared && slices.Contains([]string{"libopenblas", "libmkl_rt", "libblis", "libblis-mt"}, name)
}
