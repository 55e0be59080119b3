#!/bin/bash
# cli_demo.sh PROGRAM: the demonstrations: right where they claim it, wrong where they claim that, and their checkpoints
# are ordinary ones.
set -u
. "$(dirname "$0")/cli_tools.sh"
command -v python3 >/dev/null || { echo "cli_demo.sh: needs python3"; exit 1; }
# claim EXPRESSION: about the JSON object j.
claim() { python3 -c "import json,sys; j = json.load(open('$dir/out')); sys.exit(not ($1))" || complain "$last: not $1"; }
tracking() { run 0 demo state-tracking --json -q "$@"; }
right() { claim 'all(r["accuracy"] == 1 for r in j["runs"])'; }

# ---- the command line
run 0 demo --help && out_has 'state-tracking' && out_has 'recall'
run 0 demo state-tracking --help && out_has '^examples:'
run 0 demo recall --help && out_has '^examples:'
run 2 demo && err_has 'no demo'
run 2 demo recal && err_has 'did you mean recall'
run 2 demo state-tracking --group A4 && err_has 'no group "A4"'
run 2 demo state-tracking --group S3 --repeat '(999)' && err_has 'no element'
run 2 demo recall --key-size 16 --pairs 17 && err_has '16 unit vectors'
run 1 demo state-tracking --group S3 --device cpu --out "$dir/no/such/folder" && err_has 'no such file or folder'

# ---- state tracking: every step right, as a prompt and token by token
# leads LENGTH GROUP DEVICE: right at every step, and no lead has lost a hundredth.
leads() {
  tracking --group "$2" -d "$3" --length "$1" --words 1 --alone && right
  claim 'all(s["least_lead"] > 0.99 for r in j["runs"] for s in r["state"])'
}
for group in S3 Z2 S4 A5 D6; do leads 1000 $group cpu; done
for group in Z60 S5; do leads 5000 $group cpu; done # docs/demos.md has 100,000, of all groups
tracking --group S4 --swaps -d cpu --length 500 --words 1 --alone && right && claim 'j["n_h"] == 3'
tracking --group Z60 --repeat r1 -d cpu --length 1000 --words 1 --alone && right

# ---- and wrong, at chance, with too few steps or without reflections
for group in S5 A5; do
  tracking --group $group -d cpu --length 400 --words 2
  right
  claim 'len(j["variants"]) == 2 * j["n_h"] and j["variants"][-1]["accuracy"] == 1'
  claim 'all(v["accuracy"] < 4 / j["order"] for v in j["variants"][:-1])'
done
tracking --group Z2 -d cpu --length 1000 --words 2
claim 'j["variants"][0]["accuracy"] < 0.6 and j["variants"][1]["accuracy"] == 1'

# ---- the checkpoint is an ordinary one
tracking --group S3 -d cpu --length 10 --words 1 --alone --out "$dir/s3"
run 0 info "$dir/s3" && out_has '^architecture  *gated_deltaproduct' && out_has '2 for queries\|4 for queries'
run 0 generate "$dir/s3" -d cpu --prompt '(213) (132)' -n 1 --greedy -q --no-echo && out_has '(312)'
run 0 generate "$dir/s3" -d cpu --prompt '(213)(132)' -n 1 --greedy -q

# ---- recall
recall() { run 0 demo recall --json -q "$@"; }
recall -d cpu --key-size 16,64 --pairs 64 --texts 4 --plot "$dir/recall.png"
claim 'all(o["delta"] == 1 for o in j["overwritten"]) and j["overwritten"][0]["additive"] == 1'
claim 'all(o["additive"] < 1.3 / o["writes"] for o in j["overwritten"])'
claim 'all(c["delta"] > 0.97 for c in j["capacity"] if c["key_size"] == 64 and c["pairs"] <= 16)'
claim 'all(c["delta"] > c["additive"] for c in j["capacity"] if c["key_size"] == 64 and c["pairs"] >= 48)'
[ "$(head -c 4 "$dir/recall.png" | tail -c 3)" = PNG ] || complain "$last: no PNG"
run 0 demo recall -d cpu --key-size 8 --pairs 8 --texts 1 --out "$dir/pairs" -q && out_has '^overwritten keys'
run 0 generate "$dir/pairs" -d cpu --prompt 'k1 v4 k2 v7 k1 v9 k2 k1' -n 1 --greedy -q --no-echo && out_has 'v9'
run 0 generate "$dir/pairs" -d cpu --prompt 'k1 v4 k2 v7 k1 v9 k1 k2' -n 1 --greedy -q --no-echo && out_has 'v7'
# A checkpoint that is there is not lost.
cp -r "$dir/s3" "$dir/mine"
run 1 demo recall -d cpu --key-size 8 --pairs 8 --texts 1 --out "$dir/mine" -q && err_has 'mine/config.json: is there already (--force'
run 1 demo state-tracking --group S3 -d cpu --length 10 --words 1 --alone --out "$dir/mine" && err_has 'is there already'
cmp -s "$dir/s3/model.safetensors" "$dir/mine/model.safetensors" || complain "$last: a checkpoint was overwritten"
run 0 demo recall -d cpu --key-size 8 --pairs 8 --texts 1 --out "$dir/mine" -q --force
cmp -s "$dir/pairs/model.safetensors" "$dir/mine/model.safetensors" || complain "$last: the checkpoint was not replaced"
run 1 demo recall -d cpu --out "$dir/mine/config.json" && err_has 'is a file, not a folder'

# ---- every Vulkan device that can be used
find_vulkan
for device in $vulkan; do
  leads 200 S5 "$device"
  recall -d "$device" --key-size 16 --pairs 16 --texts 1
  claim 'all(o["delta"] == 1 for o in j["overwritten"])'
done

[ -z "$(ls "$TMPDIR")" ] || complain "temporary folders are left"
echo "cli_demo: $checks runs, $failures failures, Vulkan devices: ${vulkan:-none}"
[ $failures = 0 ]
