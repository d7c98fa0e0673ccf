package examples_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/pictures"
)

var speed = regexp.MustCompile(` \| [\d.]+ images/s`)

// From JPEG files of several sizes, cropped and mirrored at random, any number
// of workers computes the same bits. The result is the same for folders, for
// TFRecord files and after a resume.
func TestResNetLearnsTheSameBits(t *testing.T) {
	path := program(t, "resnet")
	folder, records := pictures.Write(t, 60)
	common := []string{"--depth=18", "--size=32", "--batch-size=16", "--virtual-workers=4", "--steps=4", "--report-every=1", "--warm-up=0",
		"--learning-rate=0.2", "--label-smoothing=0.1", "--digest"}
	fromFolder := append(common, "--data="+folder, "--validation="+folder)
	want := speed.ReplaceAllString(alone(t, path, fromFolder...), "")
	if !strings.HasPrefix(want, "resnet-18 | 11178051 parameters | 3 classes | 60 pictures\nstep 0 | loss 1.") ||
		strings.Count(want, "evaluation of 60 pictures | top-1 0.") != 2 || strings.Count(want, "| top-5 1.0000\n") != 2 {
		t.Errorf("it prints\n%s", want)
	}
	for _, workers := range []int{2, 4} {
		if got := speed.ReplaceAllString(run(t, path, 0, workers, fromFolder...), ""); got != want {
			t.Errorf("%d workers print\n%salone it is\n%s", workers, got, want)
		}
	}
	fromRecords := append(common, "--data="+records, "--first-label=1", "--classes=3")
	if got := digest(t, run(t, path, 1, 2, append(fromRecords, "--arch=ps")...)); got != digest(t, want) {
		t.Errorf("from records %s, from folders %s", got, digest(t, want))
	}
	checkpoints := append(fromRecords, "--ckpt-dir="+t.TempDir(), "--ckpt-every-steps=2")
	alone(t, path, append(checkpoints, "--stop-at-step=3")...)
	if got := digest(t, alone(t, path, checkpoints...)); got != digest(t, want) {
		t.Errorf("resumed after step 3 it is %s, in one run %s", got, digest(t, want))
	}
}

// Inception-v3 has its own network and shares all other code with resnet:
// pictures, flags and printed lines.
func TestInceptionLearnsTheSameBits(t *testing.T) {
	path := program(t, "inception")
	arguments := []string{"--size=75", "--batch-size=4", "--virtual-workers=2", "--steps=2", "--report-every=1", "--synthetic", "--samples=12", "--digest"}
	want := speed.ReplaceAllString(alone(t, path, arguments...), "")
	if !strings.HasPrefix(want, "inception-v3 | 23834568 parameters | 1000 classes | 12 pictures\nstep 0 | loss ") {
		t.Errorf("it prints\n%s", want)
	}
	if got := speed.ReplaceAllString(run(t, path, 0, 2, arguments...), ""); got != want {
		t.Errorf("2 workers print\n%salone it is\n%s", got, want)
	}
}

// Invalid pictures end the program with an error that names the file and
// offset, or the flag to change.
func TestResNetRefusesWrongPictures(t *testing.T) {
	path := program(t, "resnet")
	folder, records := pictures.Write(t, 12)
	cut := filepath.Join(folder, "class 1", "000.JPEG")
	content, err := os.ReadFile(cut)
	if err != nil {
		t.Fatal(err)
	}
	common := []string{"--depth=18", "--size=32", "--batch-size=4", "--steps=3"}
	refuses := func(want string, arguments ...string) {
		t.Helper()
		_, stderr, err := refused(t, path, append(common, arguments...)...)
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %v, want %q\n%s", arguments, err, want, stderr)
		}
	}
	refuses("--classes is 5: "+folder+" has folders for 3 classes: leave out the flag", "--data="+folder, "--classes=5")
	refuses("want 5 to 7: set --classes and --first-label", "--data="+records, "--classes=3", "--first-label=5")
	refuses("there are none", "--data="+folder+"/x*")
	other := t.TempDir()
	if err := os.Mkdir(filepath.Join(other, "class 0"), 0o700); err != nil {
		t.Fatal(err)
	}
	refuses("put PNG or JPEG images into it, or remove it", "--data="+other)
	save(t, filepath.Join(other, "class 0", "1.jpg"), content)
	refuses("give both folders the same classes", "--data="+folder, "--validation="+other)
	save(t, cut, content[:len(content)/2])
	refuses(fmt.Sprintf("%s: byte %d: ", cut, len(content)/2), "--data="+folder)
	damaged := filepath.Join(filepath.Dir(records), "train-1")
	if content, err = os.ReadFile(damaged); err != nil {
		t.Fatal(err)
	}
	content[100] ^= 1
	save(t, damaged, content)
	refuses(damaged+": byte 0: the record is corrupt: the checksum of its ", "--data="+records, "--classes=3", "--first-label=1")
	if _, stderr, err := refused(t, path, append(common, "--data="+folder, "--skip-corrupt")...); err != nil || !strings.Contains(stderr, "corrupt samples that were skipped here: 1\n") {
		t.Errorf("skipped: %v\n%s", err, stderr)
	}
}
