// Shows a list of words, each with a bar proportional to its number. A click emits `choose` with the word's row, from 0.
export default {
  props: { heading: String, subtitle: String, rows: Array },
  emits: ["choose"],
  template: `
    <div class="card">
      <div class="name font-medium">{{ heading }}</div>
      <div v-if="subtitle" class="quiet text-sm mb-1">{{ subtitle }}</div>
      <button v-for="(row, i) in rows" type="button" :class="['plain entry', { lit: row.lit }]"
        :style="{ '--share': row.share }" @click="$emit('choose', i)">
        <kbd v-if="row.key">{{ row.key }}</kbd>
        <div class="word">{{ row.word }}</div>
        <div class="number">{{ row.number }}</div>
      </button>
    </div>
  `,
};
