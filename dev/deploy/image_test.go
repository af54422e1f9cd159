package deploy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImage(t *testing.T) {
	t.Parallel()
	dockerfile := read(t, "Dockerfile")
	last := func(instruction string) string {
		found := regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(dockerfile, -1)
		require.NotEmpty(t, found, instruction)
		return found[len(found)-1][1]
	}
	require.Equal(t, "65532:65532", last("USER"))
	require.Equal(t, `["belay-worker"]`, last("ENTRYPOINT"), "signals reach the worker and no shell")

	argument := regexp.MustCompile(`(?m)^ARG (GO_IMAGE|BASE)=(\S+)$`).FindAllStringSubmatch(dockerfile, -1)
	require.Len(t, argument, 2)
	goVersion := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	require.NotNil(t, goVersion)
	require.Equal(t, "golang:"+goVersion[1]+"-bookworm", argument[0][2], "the Go of go.mod")
	require.Regexp(t, `^debian:bookworm-\d{8}-slim$`, argument[1][2])
	require.Contains(t, dockerfile, "\nARG PROGRAMS=build\n")
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(dockerfile, -1) {
		require.Contains(t, []string{"${GO_IMAGE}", "${BASE}", "${PROGRAMS}", "base"}, from[1], "every base is pinned above")
	}
}

func TestImageContext(t *testing.T) {
	t.Parallel()
	ignored := read(t, ".dockerignore")
	require.Contains(t, ignored, "\n*\n", "nothing is sent but what is named")
	for _, name := range []string{"go.mod", "go.sum", "activities", "deploy/image", "internal", "starter", "worker", "workflows"} {
		require.Contains(t, strings.Split(ignored, "\n"), "!"+name)
	}
	require.NotContains(t, ignored, "!dev")
}
