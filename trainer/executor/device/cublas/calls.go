package cublas

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/device"
)

// functions lists the functions of cuBLAS that this package calls.
const functions = `
cublasGetProperty cublasCreate_v2 cublasDestroy_v2 cublasSetStream_v2 cublasSetWorkspace_v2 cublasSetMathMode
cublasSgemm_v2 cublasDgemm_v2 cublasSgemmStridedBatched cublasDgemmStridedBatched`

// calls maps the names of cuBLAS's functions to their addresses.
type calls map[string]uintptr

// statuses maps cuBLAS's status codes to their names.
var statuses = map[int]string{
	1:  "CUBLAS_STATUS_NOT_INITIALIZED",
	3:  "CUBLAS_STATUS_ALLOC_FAILED",
	7:  "CUBLAS_STATUS_INVALID_VALUE",
	8:  "CUBLAS_STATUS_ARCH_MISMATCH",
	11: "CUBLAS_STATUS_MAPPING_ERROR",
	13: "CUBLAS_STATUS_EXECUTION_FAILED",
	14: "CUBLAS_STATUS_INTERNAL_ERROR",
	15: "CUBLAS_STATUS_NOT_SUPPORTED",
	16: "CUBLAS_STATUS_LICENSE_ERROR",
}

// do calls a function of cuBLAS on the current thread, which must have the GPU
// as its current device.
//
//go:uintptrescapes
func (c calls) do(name string, args ...uintptr) error { return checked(name, call(c[name], args)) }

// checked converts a cuBLAS status into an error; status 0 is success.
func checked(name string, status int) error {
	if status == 0 {
		return nil
	}
	return &device.Error{Call: name, Code: status, Name: statuses[status]}
}

// version is the major, minor and patch number that the library reports.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }
