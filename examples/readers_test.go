package examples_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/pictures"
	"github.com/plx-run/plx/trainer/data"
)

// recordFiles writes the artificial pictures of cifar to two TFRecord files,
// alternately. It returns the files, and the offset of each sample's record in
// its file.
func recordFiles(t *testing.T, samples int) (files [2]string, offsets []int) {
	t.Helper()
	made, err := data.MakePictures(0, 0, samples)
	if err != nil {
		t.Fatal(err)
	}
	var contents [2][]byte
	for i := range samples {
		x := must(made.At(i))
		offsets = append(offsets, len(contents[i%2]))
		contents[i%2] = append(contents[i%2], pictures.Record(pictures.Example(pictures.PNG(t, x), x.Label))...)
	}
	folder := t.TempDir()
	for i := range files {
		files[i] = filepath.Join(folder, fmt.Sprintf("train-%d.tfrecord", i))
		save(t, files[i], contents[i])
	}
	return files, offsets
}

// From two interleaved TFRecord files, cifar learns the same as from the
// pictures in memory, on one worker and on three. A run that is stopped and
// resumed ends with the same bits.
func TestCIFARReadsRecords(t *testing.T) {
	path := program(t, "cifar")
	files, _ := recordFiles(t, 60)
	records := "--records=" + files[0] + "," + files[1]
	common := []string{"--virtual-workers=4", "--batch-size=16", "--steps=8", "--digest"}
	want := alone(t, path, append(common, "--samples=60")...)
	if got := run(t, path, 1, 3, append(common, records)...); got != want {
		t.Errorf("3 workers print\n%swith made pictures it is\n%s", got, want)
	}
	checkpoints := append(common, records, "--ckpt-dir="+t.TempDir(), "--ckpt-every-steps=2")
	alone(t, path, append(checkpoints, "--stop-at-step=5")...)
	if got := digest(t, alone(t, path, checkpoints...)); got != digest(t, want) {
		t.Errorf("resumed after step 5 it is %s, in one run %s", got, digest(t, want))
	}
}

// A corrupt record ends the training with an error that names the file and the
// offset. With --skip-corrupt the record is skipped and counted.
func TestCIFARMeetsACorruptRecord(t *testing.T) {
	path := program(t, "cifar")
	files, offsets := recordFiles(t, 20)
	content, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	content[offsets[7]+200] ^= 1
	save(t, files[1], content)
	arguments := []string{"--records=" + files[0] + "," + files[1], "--batch-size=4", "--steps=6"}
	where := fmt.Sprintf("%s: byte %d: the record is corrupt", files[1], offsets[7])
	if _, stderr, err := refused(t, path, arguments...); err == nil || !strings.Contains(stderr, where) {
		t.Errorf("%v, want %q\n%s", err, where, stderr)
	}
	_, stderr, err := refused(t, path, append(arguments, "--skip-corrupt")...)
	if err != nil || strings.Count(stderr, where) != 1 || !strings.Contains(stderr, "corrupt samples that were skipped here: 1\n") {
		t.Errorf("skipped: %v, want %q\n%s", err, where, stderr)
	}
}

// cifar learns from folders of PNG and JPEG files, and three workers compute
// the same bits as one.
func TestCIFARReadsAFolder(t *testing.T) {
	path, root := program(t, "cifar"), t.TempDir()
	made, err := data.MakePictures(0, 0, 120)
	if err != nil {
		t.Fatal(err)
	}
	for i := range made.Len() {
		x := must(made.At(i))
		folder := filepath.Join(root, fmt.Sprintf("class %d", x.Label))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			save(t, filepath.Join(folder, fmt.Sprintf("%03d.jpg", i)), pictures.JPEG(t, x))
		} else {
			save(t, filepath.Join(folder, fmt.Sprintf("%03d.png", i)), pictures.PNG(t, x))
		}
	}
	common := []string{"--virtual-workers=4", "--batch-size=16", "--digest", "--folder=" + root}
	learns(t, alone(t, path, append(common, "--steps=41")...), 0.9, 0.3)
	want := alone(t, path, append(common, "--steps=9")...) // more than an epoch
	if got := run(t, path, 1, 3, append(common, "--steps=9")...); got != want {
		t.Errorf("3 workers print\n%salone it is\n%s", got, want)
	}
	save(t, filepath.Join(root, "class 3", "more.jpg"), []byte("no picture"))
	if _, stderr, err := refused(t, path, "--folder="+root); err == nil || !strings.Contains(stderr, "more.jpg: byte 0: neither a PNG nor a JPEG image") {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// Workers that read different files end before the first step, with an error
// that names the difference.
func TestWorkersWithOtherFilesAreRefused(t *testing.T) {
	path, files := program(t, "mlp"), [2]string{}
	for i, rows := range []string{"1,0\n2,1\n3,0\n4,1\n", "1,0\n2,1\n3,0\n5,1\n"} {
		files[i] = filepath.Join(t.TempDir(), "rows.csv")
		save(t, files[i], []byte(rows))
	}
	tasks, contract := job(t, 0, 2)
	for i, k := range tasks {
		k.folder = filepath.Dir(files[i])
	}
	launch(t, path, tasks, contract, []string{"--files=rows.csv", "--batch-size=2", "--niters=3"})
	if text := tasks[0].stderr.String(); tasks[0].err == nil || !strings.Contains(text, "worker:1 reads other data than the chief") {
		t.Errorf("%v\n%s", tasks[0].err, text)
	}
	if text := tasks[1].stderr.String(); tasks[1].err == nil || !strings.Contains(text, "worker:1 reads other data than the chief: 4 rows of 2 numbers, checksum") {
		t.Errorf("%v\n%s", tasks[1].err, text)
	}
}

// From CSV and NumPy files, mlp learns the same from one file as from several
// interleaved files.
func TestMLPReadsRows(t *testing.T) {
	path, folder := program(t, "mlp"), t.TempDir()
	draw := rand.New(rand.NewPCG(1, 2))
	const rows, features = 220, 6
	npy := fmt.Appendf([]byte("\x93NUMPY\x01\x00"), "\x4b\x00%-74s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, features+1))
	var lines [rows]string
	for i := range lines {
		row := make([]float32, features+1)
		for j := range features {
			row[j] = float32(draw.NormFloat64())
		}
		if row[0]+row[1] > 0 {
			row[features] = 1
		}
		lines[i] = strings.ReplaceAll(strings.Trim(fmt.Sprint(row), "[]"), " ", ",") + "\n"
		npy, _ = binary.Append(npy, binary.LittleEndian, row) // cannot fail
	}
	var halves [2]string
	for i, line := range lines {
		halves[i%2] += line
	}
	write := func(name, content string) string {
		save(t, filepath.Join(folder, name), []byte(content))
		return filepath.Join(folder, name)
	}
	arguments := []string{"--n-classes=2", "--dim-hidden=8", "--batch-size=20", "--niters=101", "--digest", "--optimizer=adam", "--learning-rate=0.01"}
	want := alone(t, path, append(arguments, "--files="+write("rows.npy", string(npy)))...)
	losses := series(t, want, "test_loss")
	if last := losses[len(losses)-1]; !(last < 0.5*losses[0]) {
		t.Errorf("the test's loss is %v", losses)
	}
	whole := strings.Join(lines[:], "")
	for name, more := range map[string][]string{
		"csv":      {"--files=" + write("rows.csv", "a,b,c,d,e,f,class\n"+whole), "--header"},
		"two":      {"--files=" + write("0.csv", halves[0]) + "," + write("1.csv", halves[1])},
		"gzip":     {"--files=" + write("rows.csv.gz", string(packed(t, []byte(whole))))},
		"skipping": {"--files=" + write("bad.csv", "1,2,3\n"+"1,2\n"+whole), "--skip-corrupt"},
	} {
		if name == "skipping" { // put the short row second, because the first row defines the number of columns
			more[0] = "--files=" + write("bad.csv", lines[0]+"1,2\n"+strings.Join(lines[1:], ""))
		}
		if got := digest(t, alone(t, path, append(arguments, more...)...)); got != digest(t, want) {
			t.Errorf("%s: %s, want %s", name, got, digest(t, want))
		}
	}
	if _, stderr, err := refused(t, path, "--files="+write("bad.csv", whole+"1,2\n"), "--n-classes=2", "--batch-size=20"); err == nil ||
		!strings.Contains(stderr, "bad.csv:221: wrong number of fields") {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// From parallel texts, nmt learns the same from one pair of files as from
// several interleaved pairs.
func TestNMTReadsTexts(t *testing.T) {
	path, folder := program(t, "nmt"), t.TempDir()
	draw := rand.New(rand.NewPCG(1, 2))
	var whole [2]string
	var halves [2][2]string // by half and side
	for i := range 600 {
		var words, reversed []string
		for range 1 + draw.IntN(4) {
			word := fmt.Sprintf("w%d", draw.IntN(5))
			words, reversed = append(words, word), append([]string{word}, reversed...)
		}
		for side, text := range []string{strings.Join(words, " ") + "\n", strings.Join(reversed, " ") + "\n"} {
			whole[side] += text
			halves[i%2][side] += text
		}
	}
	write := func(name, content string) string {
		save(t, filepath.Join(folder, name), []byte(content))
		return filepath.Join(folder, name)
	}
	arguments := []string{"--words=" + write("words", "w0\nw1\nw2\nw3\nw4\n"), "--length=4", "--width=12", "--hidden=24", "--batch-size=32", "--virtual-workers=2", "--digest"}
	one := append(arguments, "--source="+write("a", whole[0]), "--target="+write("b", whole[1]))
	out := alone(t, path, append(one, "--steps=401", "--learning-rate=0.01")...)
	if right := numbers(t, out, `translated (\d+) of 60`); right[0] < 50 {
		t.Errorf("%v of 60 sentences", right[0])
	}
	two := append(arguments, "--source="+write("a0", halves[0][0])+","+write("a1", halves[1][0]), "--target="+write("b0", halves[0][1])+","+write("b1", halves[1][1]))
	want := digest(t, alone(t, path, append(one, "--steps=20")...))
	if got := digest(t, run(t, path, 1, 2, append(two, "--steps=20")...)); got != want {
		t.Errorf("from two pairs of files %s, from one %s", got, want)
	}
	bad := append(arguments, "--source="+write("c", "\n"+whole[0]), "--target="+write("d", "w0\n"+whole[1]), "--steps=20")
	if _, stderr, err := refused(t, path, bad...); err == nil || !strings.Contains(stderr, filepath.Join(folder, "c")+":1: the line has no word") {
		t.Errorf("%v\n%s", err, stderr)
	}
	if _, stderr, err := refused(t, path, append(bad, "--skip-corrupt")...); err != nil || !strings.Contains(stderr, "corrupt samples that were skipped here: 1\n") {
		t.Errorf("skipped: %v\n%s", err, stderr)
	}
}
