// Package safetensors reads and writes files of tensors in the safetensors
// format. Many programs read this format, and reading it never executes code
// from the file.
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
// The first eight bytes are the length N of the header, little-endian. The
// next N bytes are the header: JSON in UTF-8, possibly padded with spaces. The
// data of the tensors fill the rest of the file. An example of a header:
//
//	{"__metadata__": {"step": "40"},
//	 "w1": {"dtype": "F32", "shape": [784, 256], "data_offsets": [0, 802816]}}
//
// Offsets count from the first byte of the data; the end is exclusive. The
// tensors' data follow one another without gaps or overlaps. Numbers are
// little-endian and in row-major order. A scalar has the shape [], and a
// tensor with a dimension of 0 has no bytes.
//
// # What it promises
//
// Write with the same arguments writes the same bytes. Open reads only the
// header, and checks all sizes in it before it allocates memory for them. If
// Open succeeds, the file contains all bytes of all tensors.
//
// # What it refuses
//
// Open refuses headers above 16 MiB, more than 64 dimensions, duplicate keys,
// unknown keys and types, tensors without a name, and files that are longer or
// shorter than their header says. The package treats elements as bytes and
// converts no numbers. It cannot detect changed data, because the format has
// no checksums.
package safetensors
