// Package safetensors reads and writes files of tensors in the safetensors
// format. Many programs read this format, and reading it never runs code from
// the file.
//
//	n, err := safetensors.Write(w, map[string]string{"step": "40"}, []safetensors.Tensor{
//		{Name: "w1", Dtype: safetensors.F32, Shape: []int{784, 256}, Data: weights},
//	})
//
//	f, err := safetensors.Open(file, size)
//	info, ok := f.Tensor("w1")
//	row := make([]byte, 4*256)
//	err = f.ReadAt("w1", row, 100*4*256) // only row 100
//
// # The format
//
// Eight bytes hold the length N of the header, little-endian. N bytes of JSON
// in UTF-8 follow, which may end with spaces. Then the data follow, up to the
// end of the file:
//
//	{"__metadata__": {"step": "40"},
//	 "w1": {"dtype": "F32", "shape": [784, 256], "data_offsets": [0, 802816]}}
//
// Offsets count from the first byte of the data; the end is exclusive. The
// tensors follow one another, and each byte of the data belongs to one tensor.
// Numbers are little-endian and in C order. A scalar has the shape [], and a
// tensor with a dimension of 0 has no bytes.
//
// # What it promises
//
// The same arguments give the same bytes. Open reads only the header, and
// checks what the header claims before it allocates or reads anything for it. A
// file that opens has all bytes of all its tensors.
//
// # What it refuses
//
// It refuses headers above 16 MiB, more than 64 dimensions, keys that occur
// twice, tensors without a name, keys and types that the format does not have,
// and files that are longer or shorter than their header says. It reads all the
// format's types as bytes and converts no numbers. It does not notice a flipped
// bit in the data, because the format has no checksums.
package safetensors
